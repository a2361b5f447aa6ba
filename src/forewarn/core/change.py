"""Change, the result of a rule, and Draft, the builder with which a rule creates it. A draft never leaves its rule."""

from collections.abc import Iterable
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID, uuid5

import msgspec

from forewarn.core.errors import ScopeTooLarge
from forewarn.core.event import Event, State, Trigger, find_transition
from forewarn.core.explain import is_approved, missing_approvals
from forewarn.core.impact import Impact
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import (
    MAX_IMPACT_TEXT_BYTES,
    MAX_NAME_LENGTH,
    MAX_RECENT_AGE,
    MAX_RECENT_ITEMS,
    MAX_RECORD_BYTES,
)
from forewarn.core.scope import ApprovalRule, EndedEvent, EventOutcome, Scope, SeenKey
from forewarn.core.text import truncate_text

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

SCOPE_RESERVE = 105 * 1024
EVENT_RESERVE = 64 + MAX_NAME_LENGTH
CLEARED_RESERVE = 16
IMPACT_RESERVE = 160 + MAX_IMPACT_TEXT_BYTES
WORKER_RESERVE = 32
APPROVAL_RESERVE = 64
"""Bytes that are kept free in a record, so that accepted events can always be approved, held, started, failed and
ended. Per scope: full lists `ended` and `seen_keys`, and a hold. Per event: its start, a host name, and a clearance if
a campaign made it. Per affected VM: its impact with the term of its host and, when that is done, the name of another
host. Per missing approval: the approval, plus the length of the VM's name."""

OUTCOMES = {
    EntryKind.COMPLETED: EventOutcome.COMPLETED,
    EntryKind.CANCELED: EventOutcome.CANCELED,
    EntryKind.FAILED: EventOutcome.FAILED,
}

_encode = msgspec.json.Encoder().encode


class Change(msgspec.Struct, Generic[R_co], frozen=True):
    """The new scope (None: removed), its journal entries, and the result for the caller.

    Save scope and entries first, in one transaction; reply and act afterwards.
    """

    scope: Scope | None
    entries: tuple[Entry, ...]
    result: R_co


class Draft:
    """A scope while a rule changes it. Time never goes back within a scope, even if the clock does."""

    def __init__(self, scope: Scope, now: datetime) -> None:
        self.before = scope
        self.clock_at = now
        """The time of the caller's clock, by which due times are compared: another process, whose clock may be fast,
        can have changed the scope before."""
        self.now = max(now, scope.changed_at)
        """The time of what the rule records."""
        self.scope = self._untouched = _drop_expired(scope, self.now)
        self.entries: list[Entry] = []

    def set(self, **fields: object) -> None:
        """Replace fields of the scope."""
        self.scope = msgspec.structs.replace(self.scope, **fields)

    @property
    def _next_entry(self) -> int:
        """The number of the next journal entry."""
        return self.scope.entries + len(self.entries) + 1

    def add_entry(
        self,
        entry_kind: EntryKind,
        *,
        by: str,
        why: str = "",
        event: Event | None = None,
        vms: Iterable[str] = (),
        **facts: str,
    ) -> None:
        """Add a journal entry."""
        self.entries.append(
            Entry(
                n=self._next_entry,
                at=self.now,
                kind=entry_kind,
                by=by,
                why=truncate_text(why),
                event=event.id if event else None,
                vms=tuple(vms) or (event.vms if event else ()),
                incarnation=self.scope.incarnation,
                facts=facts,
            )
        )

    def apply(self, event: Event, trigger: Trigger, *, by: str, why: str = "", **facts: str) -> Event | None:
        """Apply a transition to a new or open event, given with its other changes already made.

        Return the resulting event, or None if the transition ended it.
        """
        known = self.scope.find_event(event.id)
        transition = find_transition(event.id, known.state if known else State.NONE, trigger)
        incarnation = self.scope.incarnation + (transition.incarnation if event.announced else 0)
        if transition.to is State.GONE:
            self._end(event, OUTCOMES[transition.entry_kind], incarnation)
            self.add_entry(transition.entry_kind, by=by, why=why, event=event, **facts)
            return None
        if transition.to is State.STARTED:
            impacts = tuple(Impact(vm=vm) for vm in event.vms)
            updated = msgspec.structs.replace(event, state=transition.to, started_at=self.now, impacts=impacts)
        else:
            updated = msgspec.structs.replace(event, state=transition.to)
        self.put(updated, incarnation=incarnation)
        self.add_entry(transition.entry_kind, by=by, why=why, event=updated, **facts)
        return updated

    def _end(self, event: Event, outcome: EventOutcome, incarnation: int) -> None:
        ended = EndedEvent(id=event.id, request=event.request, at=self.now, outcome=outcome)
        self.set(
            events=tuple(other for other in self.scope.events if other.id != event.id),
            ended=(*self.scope.ended, ended),
            incarnation=incarnation,
        )

    def put(self, event: Event, **fields: object) -> None:
        """Replace the open event of the same id, or append it; replace other fields of the scope with it."""
        events = {other.id: other for other in self.scope.events}
        events[event.id] = event
        self.set(events=tuple(events.values()), **fields)

    def put_impact(self, event: Event, impact: Impact) -> None:
        """Store the event with the impact on one VM replaced. The next journal entry records its new state."""
        if impact.is_stuck():
            impact = msgspec.structs.replace(impact, stuck_entry=self._next_entry)
        impacts = tuple(impact if other.vm == impact.vm else other for other in event.impacts)
        self.put(msgspec.structs.replace(event, impacts=impacts))

    def remember_key(self, key: str, request: str, digest: str, caller: str) -> None:
        """Remember that a request of this caller with this key was answered."""
        seen = SeenKey(key=key, request=request, at=self.now, digest=digest, caller=caller)
        self.set(seen_keys=(*self.scope.seen_keys, seen))

    @property
    def has_room(self) -> bool:
        """Whether there is room for everything that must be possible later."""
        return self._bytes_needed() <= MAX_RECORD_BYTES

    def check_room(self) -> None:
        """Refuse a change that would not leave room for everything that must be possible later."""
        if (needed := self._bytes_needed()) > MAX_RECORD_BYTES:
            raise ScopeTooLarge(
                self.scope.id, f"with this it could need {needed // 1024} KiB of {MAX_RECORD_BYTES // 1024}"
            )

    def _bytes_needed(self) -> int:
        events = tuple(msgspec.structs.replace(event, impacts=(), started_at=None) for event in self.scope.events)
        scope = msgspec.structs.replace(self.scope, ended=(), seen_keys=(), hold=None, events=events)
        return len(_encode(scope)) + SCOPE_RESERVE + sum(reserved_bytes(scope, event) for event in events)

    def finish(self, result: R) -> Change[R]:
        """Return the finished change. If nothing happened, it has the original scope, unchanged."""
        if self.scope is self._untouched and not self.entries:
            return Change(self.before, (), result)
        fields: dict[str, object] = {"changed_at": self.now, "entries": self.scope.entries + len(self.entries)}
        if len(self.scope.ended) > MAX_RECENT_ITEMS:
            fields["ended"] = self.scope.ended[-MAX_RECENT_ITEMS:]
        if len(self.scope.seen_keys) > MAX_RECENT_ITEMS:
            fields["seen_keys"] = self.scope.seen_keys[-MAX_RECENT_ITEMS:]
        self.set(**fields)
        return Change(self.scope, tuple(self.entries), result)

    def remove(self, result: R) -> Change[R]:
        """Return the change that removes the scope."""
        return Change(None, tuple(self.entries), result)


def _drop_expired(scope: Scope, now: datetime) -> Scope:
    """Return the scope without expired `ended` entries and keys; the same object if nothing has expired."""
    if not scope.ended and not scope.seen_keys:
        return scope
    since = now - MAX_RECENT_AGE
    ended = tuple(item for item in scope.ended if item.at > since)
    seen_keys = tuple(item for item in scope.seen_keys if item.at > since)
    if len(ended) == len(scope.ended) and len(seen_keys) == len(scope.seen_keys):
        return scope
    return msgspec.structs.replace(scope, ended=ended, seen_keys=seen_keys)


def reserved_bytes(scope: Scope, event: Event) -> int:
    """Return how many bytes the event may still need in the record for its start, impacts and approvals."""
    impacts = sum(len(vm) + IMPACT_RESERVE for vm in event.vms)
    if event.host is not None:
        impacts += len(event.vms) * (len(event.host) + WORKER_RESERVE)
    if scope.approval is ApprovalRule.ANY:
        approvals = 0 if is_approved(scope, event) else APPROVAL_RESERVE + MAX_NAME_LENGTH
    else:
        approvals = sum(len(vm) + APPROVAL_RESERVE for vm in missing_approvals(scope, event))
    cleared = CLEARED_RESERVE if event.campaign else 0
    return EVENT_RESERVE + cleared + impacts + approvals


def format_timestamp(moment: datetime) -> str:
    """Format a time for the facts of journal entries."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def derive_id(parent: str, *names: object) -> str:
    """Derive the id of an event from the id of its request: the same request always gives the same id."""
    return str(uuid5(UUID(parent), "/".join(str(name) for name in names))).upper()
