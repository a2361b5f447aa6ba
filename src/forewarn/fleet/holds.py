"""Holds: an operator's stop of planned maintenance, on the whole fleet or on one scope."""

from collections.abc import Iterator
from functools import partial

from forewarn.core import operations
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.scope import Hold
from forewarn.fleet.hold_record import HoldRecord, clear_hold, set_hold
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.scopes import Scopes


class Holds:
    """Sets and releases holds. `by` is the caller; a repeated `idempotency_key` changes nothing."""

    def __init__(self, record: HoldRecord, scopes: Scopes, idempotent: IdempotentScopes) -> None:
        self._record = record
        self._scopes = scopes
        self._idempotent = idempotent
        self._clock = scopes.clock

    @property
    def current(self) -> Hold | None:
        """The hold on the whole fleet, if there is one."""
        return self._record.current

    def all(self) -> Iterator[tuple[str | None, Hold]]:
        """Yield every hold with its scope: first that of the whole fleet, with None, then by the scope's id."""
        if self._record.current is not None:
            yield None, self._record.current
        scopes = (view.scope for view in self._scopes.replica.views())
        held = [(scope.id, scope.hold) for scope in scopes if scope is not None and scope.hold is not None]
        yield from sorted(held, key=lambda pair: pair[0])

    async def set(
        self, *, by: str, reason: str, scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Hold planned maintenance, of the fleet or of one scope, until `release`.

        After the return no planned event starts in any process: starts that were being decided are guarded by the old
        hold record, so their saves are refused and they are decided again.
        """
        now = self._clock.now()
        if scope is None:
            await self._record.apply(partial(set_hold, by=by, reason=reason, now=now), idempotency_key, now=now)
        else:
            await self._idempotent.apply(
                scope,
                lambda value: operations.hold(value, by=by, reason=reason, now=self._clock.now()),
                idempotency_key,
            )

    async def release(
        self, *, by: str, why: str = "", scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Release the hold of the fleet or of one scope; events that became due meanwhile start."""
        now = self._clock.now()
        if scope is None:
            await self._record.apply(partial(clear_hold, by=by, why=why, now=now), idempotency_key, now=now)
        else:
            await self._idempotent.apply(
                scope,
                lambda value: operations.release(
                    value, self._scopes.rule_context, by=by, now=self._clock.now(), why=why
                ),
                idempotency_key,
            )
