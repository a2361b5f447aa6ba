"""The hold on the whole fleet: a separate record, which guards every start of an event.

It changes only when an operator holds or releases the fleet, so decisions that depend on it are seldom repeated. The
functions are rules like those of `core`: they decide, and the caller saves.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Hold, SeenKey, new_hold
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordChange, RecordCodec, RecordTable
from forewarn.store.port import Guards, RecordKey, RecordKind

FLEET_HOLD = RecordKey(RecordKind.FLEET, "hold")


class FleetHold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the whole fleet is held, and the answered idempotency keys."""

    entries: int = 0
    hold: Hold | None = msgspec.field(default=None, name="held")
    seen_keys: tuple[SeenKey, ...] = msgspec.field(default=(), name="answered")


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(FleetHold).decode


class HoldRecord:
    """The last saved value of the record, and its changes."""

    def __init__(self, main_loop: MainLoop) -> None:
        self.current: Hold | None = None
        """The hold on the whole fleet, if there is one."""
        self.guards: Guards = {FLEET_HOLD: None}
        """The record with the revision of `current`, as a guard for decisions."""
        self._table = RecordTable[FleetHold]()
        codec = RecordCodec(FLEET_HOLD.kind, encode, decode, id=FLEET_HOLD.id)
        self._loop = main_loop.add(codec, self._table, [self._observe])

    def _observe(self, change: RecordChange[FleetHold]) -> None:
        """Take the newest value into memory, because it is read far more often than it changes."""
        value, revision = self._table.newest(change.id)
        self.current = None if value is None else value.hold
        self.guards = {FLEET_HOLD: revision}

    @property
    def observers(self) -> list[Observer[FleetHold]]:
        """The observers of every change of the record, in order."""
        return self._loop.observers

    async def apply(
        self,
        rule: Callable[[FleetHold], Decision[FleetHold, None]],
        idempotency_key: IdempotencyKey | None,
        *,
        now: datetime,
    ) -> None:
        """Apply a rule and save its result, unless this request was answered before."""

        def command(value: FleetHold | None) -> Decision[FleetHold, None]:
            decision = _apply_once(value or FleetHold(), idempotency_key, rule, now=now)
            return decision if decision.value != FleetHold() else Decision(value, (), None)

        await self._loop.apply(FLEET_HOLD.id, command)


def set_hold(value: FleetHold, *, by: str, reason: str, now: datetime) -> Decision[FleetHold, None]:
    """Hold planned maintenance in the whole fleet."""
    hold = new_hold(by=by, reason=reason, now=now)
    return _with_entry(msgspec.structs.replace(value, hold=hold), EntryKind.HELD, by=by, why=reason, now=now)


def clear_hold(value: FleetHold, *, by: str, why: str, now: datetime) -> Decision[FleetHold, None]:
    """Release the hold on the whole fleet."""
    if value.hold is None:
        return Decision(value, (), None)
    return _with_entry(msgspec.structs.replace(value, hold=None), EntryKind.RELEASED, by=by, why=why, now=now)


def _with_entry(
    value: FleetHold, entry_kind: EntryKind, *, by: str, why: str, now: datetime
) -> Decision[FleetHold, None]:
    entry = Entry(n=value.entries + 1, at=now, kind=entry_kind, by=by, why=why)
    return Decision(msgspec.structs.replace(value, entries=entry.n), (entry,), None)


def _apply_once(
    value: FleetHold,
    idempotency_key: IdempotencyKey | None,
    rule: Callable[[FleetHold], Decision[FleetHold, None]],
    *,
    now: datetime,
) -> Decision[FleetHold, None]:
    if idempotency_key is not None and is_repeated_request(value.seen_keys, idempotency_key, now=now):
        return Decision(value, (), None)
    decision = rule(value)
    if idempotency_key is None or decision.value is None:
        return decision
    seen_keys = add_seen_key(decision.value.seen_keys, idempotency_key, now=now)
    return decision._replace(value=msgspec.structs.replace(decision.value, seen_keys=seen_keys))
