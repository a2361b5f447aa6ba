"""Describing in a story's words what is so: the document of a VM, and everything that is kept of a scope."""

from collections.abc import Iterator

from forewarn.core.duration import format_duration
from forewarn.core.event import Event, State
from forewarn.core.impact import Impact
from forewarn.core.scope import Scope
from forewarn.core.vm import Traits, Vm
from forewarn.testing.scenario.commands import SetFault
from forewarn.testing.scenario.telling import Names

FAULTS_CLEARED = "no fault any more"


def fault_told(fault: SetFault) -> str:
    """Tell that the endpoint misbehaves from now on, and towards whom."""
    return f"{fault.kind.value} for {fault.vm or 'all VMs'}"


def described_document(scope: Scope, names: Names) -> list[str]:
    """Describe what every VM of the scope gets to see."""
    number = f"epoch {names.epoch(scope.id, scope.epoch)}, incarnation {scope.incarnation}"
    return [number, *(_shown(event, names) for event in scope.events if event.announced)]


def _shown(event: Event, names: Names) -> str:
    parts = [names.label(event.id), event.state.value, event.type.value, *event.vms, f"from {event.source.value}"]
    if event.state is State.SCHEDULED:
        parts.append(f"not_before {names.time(event.not_before)}")
    if event.duration is not None:
        parts.append(f"lasting {format_duration(event.duration)}")
    return " ".join(parts)


def described_scope(scope: Scope, names: Names) -> list[str]:
    """Describe a scope with its VMs, its open events and what it remembers."""
    return [
        ", ".join(_frame(scope, names)),
        *(_vm(vm) for vm in scope.roster),
        *(fact for event in scope.events for fact in _event(event, names)),
        *(f"{names.label(ended.id)} ended {ended.outcome.value} at {names.time(ended.at)}" for ended in scope.ended),
        *(f"request key {item.key} answered at {names.time(item.at)}" for item in scope.seen_keys),
    ]


def _frame(scope: Scope, names: Names) -> Iterator[str]:
    yield f"{scope.id} {scope.kind.value}"
    yield from _traits(scope.traits)
    yield f"approval {scope.approval.value}"
    if scope.auto_approve:
        yield f"auto-approve {' '.join(scope.auto_approve)}"
    yield f"epoch {names.epoch(scope.id, scope.epoch)}"
    yield f"incarnation {scope.incarnation}"
    yield "enabled" if scope.enabled else "not enabled"
    if scope.seen_at is not None:
        yield f"seen {names.time(scope.seen_at)}"
    if scope.hold is not None:
        yield f"held by {scope.hold.by} since {names.time(scope.hold.at)} ({scope.hold.reason})"
    yield f"changed {names.time(scope.changed_at)}"


def _traits(traits: Traits) -> Iterator[str]:
    if traits.priority is not None:
        yield f"priority {traits.priority.value}"
    if traits.terminate_notice is not None:
        yield f"terminate-notice {format_duration(traits.terminate_notice)}"


def _vm(vm: Vm) -> str:
    return ", ".join((f"{vm.name} in domain {vm.update_domain} on {vm.host or 'an unknown host'}", *_traits(vm.traits)))


def _event(event: Event, names: Names) -> Iterator[str]:
    label = names.label(event.id)
    why = f" ({event.why})" if event.why else ""
    place = f"in domain {event.update_domain} on {event.host or 'an unknown host'}"
    yield f"{_shown(event, names)}, {place}{'' if event.announced else ', unannounced'}"
    yield f'{label} made {names.time(event.created_at)} by {event.by}{why}: {event.cause.value}, "{event.description}"'
    for approval in event.approvals:
        yield f"{label} approved {names.time(approval.at)} by {approval.vm}"
    if event.started_at is not None:
        yield f"{label} started {names.time(event.started_at)}"
    for impact in event.impacts:
        yield f"{label} {_impact(impact, names)}"


def _impact(impact: Impact, names: Names) -> str:
    parts = [f"on {impact.vm} {impact.state.value}"]
    if impact.attempt:
        parts.append(f"attempt {impact.attempt}")
    if impact.begun_at is not None:
        parts.append(f"begun {names.time(impact.begun_at)}")
    if impact.retry_at is not None:
        parts.append(f"again at {names.time(impact.retry_at)}")
    if impact.why:
        parts.append(f"({impact.why})")
    return " ".join(parts)
