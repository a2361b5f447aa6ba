"""Invariants of one scope for property tests: follow its journal by the table of transitions, and check every change.

The expected state is derived from the journal, not read from the scope; only the table is shared with the rules.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from forewarn.core.change import Change
from forewarn.core.event import TRANSITIONS, Cause, Event, EventType, Source, State, Transition
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import SETTLED, ImpactState
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECENT_AGE, MAX_RECENT_ITEMS, MAX_RECORD_BYTES
from forewarn.core.policy import RuleContext
from forewarn.core.scope import ApprovalRule, EventOutcome, Scope

OUTCOMES = {
    EntryKind.COMPLETED: EventOutcome.COMPLETED,
    EntryKind.CANCELED: EventOutcome.CANCELED,
    EntryKind.FAILED: EventOutcome.FAILED,
}
Documents = Callable[[Scope], Iterable[tuple[str, bytes]]]
"""Renders the documents of a scope for guests, each with its ETag."""

TRANSITION_KINDS = {step.entry_kind for step in TRANSITIONS.values()}


def no_documents(scope: Scope) -> Iterable[tuple[str, bytes]]:
    """Render nothing, because the rules do not depend on the wire."""
    return ()


class ScopeInvariants:
    """The state of one scope according to its journal, and the checks of every change against it."""

    def __init__(self, scope: Scope, documents: Documents = no_documents) -> None:
        self.render = documents
        self.scope: Scope | None = scope
        self.entries = scope.entries
        self.incarnation = scope.incarnation
        self.epoch = scope.epoch
        self.epochs = {scope.epoch}
        self.states: dict[str, State] = {}
        self.announced: dict[str, bool] = {}
        self.types: dict[str, EventType] = {}
        self.approvals: dict[str, set[str]] = {}
        self.outcomes: dict[str, EventOutcome] = {}
        self.documents: dict[str, bytes] = {}

    def check_change(self, change: Change[Any], conditions: RuleContext) -> None:
        """Check a saved change."""
        before, after = self.scope, change.scope
        assert before is not None, "a removed scope does not change"
        if not change.entries and after is before:
            return
        for entry in change.entries:
            self._check_entry(entry, before, after, conditions)
        self.scope = after
        if after is None:
            assert {self.states[event] for event in self.states} <= {State.GONE}
            return
        assert after.changed_at >= before.changed_at
        assert all(entry.at == after.changed_at for entry in change.entries)
        self._check_record(after)
        self._check_documents(after)
        check_scope(after)

    def _check_entry(self, entry: Entry, before: Scope, after: Scope | None, conditions: RuleContext) -> None:
        assert entry.n == self.entries + 1, "entries are numbered without gaps"
        self.entries = entry.n
        if entry.kind is EntryKind.ENABLED and entry.facts["epoch"] != self.epoch:
            self.epoch, self.incarnation = entry.facts["epoch"], 1
            assert self.epoch not in self.epochs, "an epoch is never reused"
            self.epochs.add(self.epoch)
        if entry.kind in TRANSITION_KINDS:
            assert entry.event is not None
            self._check_transition(entry, entry.event, before, after, conditions)
        elif entry.event is not None:
            assert self.states[entry.event] is State.STARTED, "impacts occur only in Started events"
        assert entry.incarnation == self.incarnation, f"expected incarnation {self.incarnation}: {entry}"

    def _check_transition(
        self, entry: Entry, id_: str, before: Scope, after: Scope | None, conditions: RuleContext
    ) -> None:
        known = self.states.get(id_, State.NONE)
        transitions = {
            step for (state, _), step in TRANSITIONS.items() if state is known and step.entry_kind is entry.kind
        }
        assert len(transitions) == 1, f"an event that is {known.value} cannot be {entry.kind.value}"
        (step,) = transitions
        if known is State.NONE:
            self.announced[id_] = "unannounced" not in entry.facts
            self.types[id_] = EventType(entry.facts["type"])
            self.approvals[id_] = self._inherited(id_, after)
        if entry.kind is EntryKind.ANNOUNCED:
            self.announced[id_] = True
        if entry.kind is EntryKind.APPROVED:
            self.approvals[id_].add(entry.by.removeprefix("vm:"))
        if entry.kind is EntryKind.COMPLETED and after is not None and EVENT_TYPES[self.types[id_]].removes_vm:
            assert not set(entry.vms) & {vm.name for vm in after.roster}, "removed VMs are no longer in the scope"
        if step.to is State.STARTED:
            self._check_start(entry, id_, known, before, after, conditions)
        self._apply_transition(id_, step)

    def _inherited(self, id_: str, after: Scope | None) -> set[str]:
        """Return the approvals that an event inherits from the one it was split off; each must have been given."""
        event = after.find_event(id_) if after is not None else None
        approvals = {approval.vm for approval in event.approvals} if event is not None else set()
        assert approvals <= set().union(*self.approvals.values())
        return approvals

    def _apply_transition(self, id_: str, transition: Transition) -> None:
        if self.announced[id_]:
            self.incarnation += transition.incarnation
        self.states[id_] = transition.to
        if transition.to is State.GONE:
            self.outcomes[id_] = OUTCOMES[transition.entry_kind]

    def _check_start(
        self, entry: Entry, id_: str, known: State, before: Scope, after: Scope | None, conditions: RuleContext
    ) -> None:
        assert after is not None
        event = after.find_event(id_) or before.event(id_)
        if known is State.NONE:
            auto_approved = event.source is Source.USER and event.type in after.auto_approve
            assert event.cause is Cause.FAILURE or auto_approved, "only failures and auto-approved events start at once"
            return
        approved = bool(self.approvals[id_])
        if after.approval is ApprovalRule.ALL:
            approved = set(entry.vms) <= self.approvals[id_]
        assert entry.at >= event.not_before or approved, "no event starts early without approval"
        if event.cause is Cause.MAINTENANCE:
            assert after.hold is None, "no planned event starts while its scope is held"
            assert conditions.hold is None, "no planned event starts while the fleet is held"
            assert event.cleared or not event.campaign, "no event of a campaign starts before it is cleared"

    def _check_record(self, scope: Scope) -> None:
        """Check that the journal and the record agree."""
        still_open = {id_: state for id_, state in self.states.items() if state is not State.GONE}
        assert {event.id: event.state for event in scope.events} == still_open
        assert {event.id: event.announced for event in scope.events} == {id_: self.announced[id_] for id_ in still_open}
        assert (scope.incarnation, scope.epoch, scope.entries) == (self.incarnation, self.epoch, self.entries)
        assert {ended.id: ended.outcome for ended in scope.ended}.items() <= self.outcomes.items()

    def _check_documents(self, scope: Scope) -> None:
        for etag, shown in self.render(scope):
            assert self.documents.setdefault(etag, shown) == shown, "equal ETags mean equal documents"

    def check_all_ended(self) -> None:
        """Check that every event has ended in exactly one way."""
        assert set(self.states.values()) <= {State.GONE}
        assert self.outcomes.keys() == self.states.keys()


def check_scope(scope: Scope) -> None:
    """Check what must be true of every scope at any time."""
    planned = [event for event in scope.events if event.cause is Cause.MAINTENANCE and event.state is State.STARTED]
    assert len({event.update_domain for event in planned}) <= 1, "one update domain at a time"
    for event in scope.events:
        _check_event(scope, event)
    begun = [i.vm for event in scope.events for i in event.impacts if i.state is ImpactState.BEGUN]
    assert len(begun) == len(set(begun)), "one impact per VM at a time"
    assert len(scope.ended) <= MAX_RECENT_ITEMS
    assert all(scope.changed_at - ended.at < MAX_RECENT_AGE + timedelta(seconds=1) for ended in scope.ended)
    encoded = msgspec.json.encode(scope)
    assert len(encoded) <= MAX_RECORD_BYTES
    assert msgspec.json.decode(encoded, type=Scope) == scope


def _check_event(scope: Scope, event: Event) -> None:
    assert len(set(event.vms)) == len(event.vms)
    if event.state is State.SCHEDULED:
        places = {(scope.vm(vm).update_domain, scope.vm(vm).host) for vm in event.vms}
        assert places == {(event.update_domain, event.host)}, "an event's VMs share update domain and host"
        assert event.impacts == ()
        assert event.not_before == event.not_before.replace(microsecond=0)
        assert not event.cleared, "a cleared event has started"
    else:
        assert tuple(impact.vm for impact in event.impacts) == event.vms
        assert any(impact.state not in SETTLED for impact in event.impacts), "an event without open impacts has ended"


def latest(scope: Scope, now: datetime) -> datetime:
    """Return the scope's time, which does not go back if the clock does."""
    return max(now, scope.changed_at)
