"""The state of a VM as the dashboard shows it: one word, from the events that affect it, holds and polls."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from forewarn.core.event import Event, State
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.scope import Hold, Scope
from forewarn.fleet.replica import ScopeView

POLL_LIMIT = timedelta(minutes=5)
"""A VM that has not polled for this long is not polling; agents poll every second."""


class VmState(StrEnum):
    """The states, the most urgent first."""

    FAILED = "failed"
    IMPACT = "in impact"
    HELD = "held"
    APPROVED = "approved"
    SCHEDULED = "scheduled"
    SILENT = "not polling"
    UNKNOWN = "not known yet"
    QUIET = "quiet"

    @property
    def mark(self) -> str:
        """The name of its colour and mark in the style sheet."""
        marks = {VmState.IMPACT: "impact", VmState.SILENT: "silent", VmState.UNKNOWN: "silent"}
        return marks.get(self, self.value)


ORDER = {state: place for place, state in enumerate(VmState)}


def vm_states(
    view: ScopeView, scope: Scope, fleet_hold: Hold | None, *, now: datetime, knows_polls: bool
) -> dict[str, VmState]:
    """Return the state of each VM of a scope. A hold shows only on VMs whose maintenance it stops.

    `knows_polls`: whether this process would know if a VM has polled.
    """
    is_held = fleet_hold is not None or scope.hold is not None
    unheard = VmState.SILENT if knows_polls or not scope.enabled else VmState.UNKNOWN
    states = {vm.name: _poll_state(view, scope, vm.name, unheard, now=now) for vm in scope.roster}
    for event in scope.events:
        for name, state in _event_states(event, is_held=is_held):
            if name in states and ORDER[state] < ORDER[states[name]]:
                states[name] = state
    return states


def count_states(
    view: ScopeView, scope: Scope, fleet_hold: Hold | None, *, now: datetime, knows_polls: bool
) -> Mapping[VmState, int]:
    """Return how many VMs of a scope are in each state."""
    if scope.events or (scope.enabled and (view.polled_at or not knows_polls)):
        return Counter(vm_states(view, scope, fleet_hold, now=now, knows_polls=knows_polls).values())
    return {VmState.SILENT: len(scope.roster)}


def _poll_state(view: ScopeView, scope: Scope, name: str, unheard: VmState, *, now: datetime) -> VmState:
    """Return the state of a VM without events; `unheard` if this process has not heard of any poll of it."""
    polled_at = view.polled_at.get(name)
    if polled_at is None:
        return unheard
    return VmState.QUIET if scope.enabled and now - polled_at < POLL_LIMIT else VmState.SILENT


def _event_states(event: Event, *, is_held: bool) -> Iterable[tuple[str, VmState]]:
    if event.state is State.STARTED:
        work = {impact.vm: impact.state for impact in event.impacts}
        return [
            (name, VmState.FAILED if work.get(name) in STUCK else VmState.IMPACT)
            for name in event.vms
            if work.get(name) is not ImpactState.DONE
        ]
    if is_held and event.is_planned:
        return [(name, VmState.HELD) for name in event.vms]
    return [(name, VmState.APPROVED if event.approvals else VmState.SCHEDULED) for name in event.vms]
