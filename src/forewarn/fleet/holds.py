"""Holds: an operator's stop of planned maintenance, on the whole fleet or on one scope."""

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

    async def set(
        self, *, by: str, reason: str, scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Let nothing planned start, anywhere or in one scope, until `release`.

        On return nothing planned starts any more, in whichever process: what was about to start rests on the hold as it
        was before, so it is refused and decided again.
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
        """End a hold, on the whole fleet or on one scope; what has become due meanwhile starts."""
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
