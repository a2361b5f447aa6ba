"""Render journal entries, documents and scopes as the short facts of the scenario language."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from forewarn.core.duration import format_duration
from forewarn.core.event import Event, State
from forewarn.core.event_type import announced_duration
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.impact import Impact
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Scope
from forewarn.core.vm import Traits, Vm
from forewarn.testing.scenario.commands import SetFault
from forewarn.testing.scenario.lexer import time_text

FIRST_DAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Midnight of the first day of a scenario on the core."""

_GUID = re.compile(r"[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ")

IMPLIED_ACTORS = {"operator", "platform", "clock", "guest"}
"""Actors that facts do not name: the defaults of commands, and those that the command implies."""


class Names:
    """The names in a scenario: labels for events, ordinals for epochs, short times for points in time.

    `speed` is how much faster the service is than the scenario. Times of a service with its own clock are rounded to
    `precision`.
    """

    def __init__(
        self, first_day: datetime = FIRST_DAY, *, speed: float = 1.0, precision: timedelta | None = None
    ) -> None:
        self._first_day = first_day
        self._speed, self._precision = speed, precision
        self._labels: dict[str, str] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def label(self, event: str) -> str:
        """Return the label of an event; a new event gets the next label."""
        return self._labels.setdefault(event, f"E{len(self._labels) + 1}")

    def has_event(self, event: str) -> bool:
        """Return whether the event has a label."""
        return event in self._labels

    def event(self, label: str) -> str | None:
        """Return the id of the event with that label, or None if it has not appeared yet."""
        return next((id_ for id_, known in self._labels.items() if known == label), None)

    def epoch(self, scope: str, token: str) -> int:
        """Return the ordinal of an epoch of a scope."""
        ordinal = sum(1 for known, _ in self._epochs if known == scope) + 1
        return self._epochs.setdefault((scope, token), ordinal)

    def moment(self, time: timedelta) -> datetime:
        """Convert a time of the scenario to a datetime."""
        return self._first_day + time / self._speed

    def time(self, moment: datetime) -> str:
        """Write a datetime as a time of the scenario."""
        return time_text(self._rounded((moment - self._first_day) * self._speed))

    def duration(self, text: str) -> str:
        """Write a duration from the journal, in seconds, as a duration of the scenario."""
        return format_duration(self._rounded(timedelta(seconds=float(text.removesuffix("s"))) * self._speed))

    def _rounded(self, time: timedelta) -> timedelta:
        return time if self._precision is None else round(time / self._precision) * self._precision

    def newest_epoch(self, scope: str) -> int:
        """Return the ordinal of the newest known epoch of a scope."""
        return max((ordinal for (known, _), ordinal in self._epochs.items() if known == scope), default=1)

    def replace_ids(self, text: str) -> str:
        """Replace ids and dates in a text by the scenario's names."""
        named = _GUID.sub(lambda found: self._labels.get(found[0], found[0]), text)
        return _TIMESTAMP.sub(lambda found: self.time(datetime.fromisoformat(found[0])), named)


class FactRenderer:
    """Renders the journal of one scope as facts, entry by entry."""

    def __init__(self, scope: str, names: Names, *, incarnation: int = 1) -> None:
        self._scope = scope
        self._names = names
        self._incarnation = incarnation

    def render(self, entries: Sequence[Entry], named: Sequence[str] = ()) -> list[str]:
        """Return the facts of the entries, without the VMs that the command itself `named`."""
        return [self._render_entry(entry, set(named)) for entry in entries]

    def _render_entry(self, entry: Entry, named: set[str]) -> str:
        fact = " ".join((self._subject(entry), VERBS[entry.kind], *self._details(entry, named))) + self._remarks(entry)
        if entry.kind is EntryKind.ENABLED:
            fact += f", epoch {self._names.epoch(self._scope, entry.facts['epoch'])}"
        if entry.incarnation is not None and entry.incarnation != self._incarnation:
            self._incarnation = entry.incarnation
            fact += f", incarnation {entry.incarnation}"
        return self._names.replace_ids(fact)

    def _subject(self, entry: Entry) -> str:
        if entry.event is None:
            return " ".join(entry.vms) if entry.kind in VM_ENTRIES else self._scope
        label = self._names.label(entry.event)
        return f"{label} on {' '.join(entry.vms)}" if entry.kind in IMPACT_ENTRIES else label

    def _details(self, entry: Entry, named: set[str]) -> Iterator[str]:
        if "unannounced" in entry.facts:
            yield "unannounced"
        if entry.kind is EntryKind.SHRUNK or (_is_creation(entry) and set(entry.vms) != named):
            yield " ".join(entry.vms)
        if "not_before" in entry.facts:
            yield f"not_before {entry.facts['not_before']}"
        if "retry_at" in entry.facts:
            yield f"until {entry.facts['retry_at']}"
        if "took" in entry.facts:
            yield f"after {self._names.duration(entry.facts['took'])}"
        if entry.kind is EntryKind.APPROVED or entry.by not in IMPLIED_ACTORS | {
            f"vm:{vm}" for vm in self._approvers(entry)
        }:
            yield f"by {entry.by.removeprefix('vm:')}"
        if entry.why:
            yield f"({entry.why})"

    def _approvers(self, entry: Entry) -> Sequence[str]:
        """Return the VMs that the reason of a start names already."""
        return entry.why.removeprefix("approved by ").split(", ") if entry.kind is EntryKind.STARTED else ()

    def _remarks(self, entry: Entry) -> str:
        remarks = ""
        if "attempt" in entry.facts and entry.facts["attempt"] != "1":
            remarks += f", attempt {entry.facts['attempt']}"
        if (late := entry.facts.get("late", "0.000s")) != "0.000s":
            remarks += f", {self._names.duration(late)} late"
        if "held_by" in entry.facts:
            remarks += f", held: {entry.facts['held_by']}"
        return remarks


def render_campaign_entry(name: str, entry: Entry, names: Names) -> str:
    """Return the fact of an entry of a campaign's journal: about the campaign, a wave or the gate."""
    facts = entry.facts
    parts = [name]
    if entry.kind in WAVE_ENTRIES:
        parts.append(f"wave {facts['wave']} of {facts['scope']}")
    elif entry.kind in GATE_ENTRIES:
        parts.append("gate")
    parts.append(VERBS[entry.kind])
    if entry.kind is EntryKind.CAMPAIGN_STARTED:
        parts.append(f"with {facts['waves']} wave{'' if facts['waves'] == '1' else 's'}")
    if entry.kind is EntryKind.CAMPAIGN_ENDED:
        parts.append(facts["state"])
    parts += [f"{key} {facts[key]}" for key in ("not_before", "came", "went", "moved", "changed") if key in facts]
    if entry.by not in IMPLIED_ACTORS and not entry.by.startswith(CAMPAIGN_PREFIX):
        parts.append(f"by {entry.by}")
    if entry.why:
        parts.append(f"({entry.why})")
    return names.replace_ids(" ".join(parts))


def campaign_order(record: str, scope: str, entry: Entry) -> tuple[datetime, str, str]:
    """Return the sort key of an entry in a scenario with campaigns, where simultaneous entries have no defined order.

    At the same time, scopes come before campaigns, each by name; `record` is the kind of the entry's record.
    """
    return (entry.at, "", scope) if record == "scope" else (entry.at, record, entry.facts.get("scope", ""))


def _is_creation(entry: Entry) -> bool:
    return entry.kind is EntryKind.SCHEDULED or (entry.kind is EntryKind.STARTED and "type" in entry.facts)


VERBS: dict[EntryKind, str] = {
    EntryKind.SCOPE_CREATED: "created",
    EntryKind.SCOPE_CHANGED: "changed",
    EntryKind.SCOPE_REMOVED: "removed",
    EntryKind.VM_ADDED: "added",
    EntryKind.VM_CHANGED: "changed",
    EntryKind.VM_REMOVED: "removed",
    EntryKind.VM_MOVED: "moved",
    EntryKind.ENABLED: "enabled",
    EntryKind.DISABLED: "disabled",
    EntryKind.HELD: "held",
    EntryKind.RELEASED: "released",
    EntryKind.SCHEDULED: "Scheduled",
    EntryKind.ANNOUNCED: "announced",
    EntryKind.APPROVED: "approved",
    EntryKind.STARTED: "Started",
    EntryKind.SHRUNK: "left with",
    EntryKind.COMPLETED: "Completed",
    EntryKind.CANCELED: "Canceled",
    EntryKind.FAILED: "Failed",
    EntryKind.IMPACT_BEGUN: "begun",
    EntryKind.IMPACT_DONE: "done",
    EntryKind.IMPACT_RETRY: "put off",
    EntryKind.IMPACT_FAILED: "failed",
    EntryKind.IMPACT_UNKNOWN: "unknown",
    EntryKind.IMPACT_RETRIED: "to be tried again",
    EntryKind.IMPACT_GIVEN_UP: "given up",
    EntryKind.CLOCK_MOVED: "moved the clock",
    EntryKind.SPEED_CHANGED: "changed the speed",
    EntryKind.SCENARIO_STARTED: "started a scenario",
    EntryKind.SCENARIO_ENDED: "ended a scenario",
    EntryKind.REPORT_ADDED: "added a report",
    EntryKind.FAULT_SET: "fault set",
    EntryKind.FAULT_CLEARED: "fault cleared",
    EntryKind.FAULT_ENDED: "fault over",
    EntryKind.CAMPAIGN_STARTED: "began",
    EntryKind.CAMPAIGN_PAUSED: "paused",
    EntryKind.CAMPAIGN_RESUMED: "goes on",
    EntryKind.CAMPAIGN_HALTED: "halted",
    EntryKind.CAMPAIGN_ABORTED: "aborted",
    EntryKind.CAMPAIGN_ENDED: "ended",
    EntryKind.WAVE_ANNOUNCED: "announced",
    EntryKind.WAVE_UNANNOUNCED: "unannounced",
    EntryKind.WAVE_DIFFERS: "differs from the plan",
    EntryKind.WAVE_CLEARED: "cleared",
    EntryKind.WAVE_SETTLED: "settled",
    EntryKind.WAVE_FAILED: "failed",
    EntryKind.WAVE_SKIPPED: "skipped",
    EntryKind.WAVE_LEFT: "left",
    EntryKind.WAVE_RETRIED: "to be tried again",
    EntryKind.GATE_CLOSED: "shut",
    EntryKind.GATE_OPENED: "open again",
    EntryKind.TOKEN_CREATED: "made",
    EntryKind.TOKEN_REVOKED: "revoked",
    EntryKind.RESTORED: "restored",
    EntryKind.POLICY_CHANGED: "changed",
    EntryKind.CALENDAR_CREATED: "calendar made",
    EntryKind.CALENDAR_REVOKED: "calendar revoked",
}

CAMPAIGN_ENTRIES = {
    EntryKind.CAMPAIGN_STARTED,
    EntryKind.CAMPAIGN_PAUSED,
    EntryKind.CAMPAIGN_RESUMED,
    EntryKind.CAMPAIGN_HALTED,
    EntryKind.CAMPAIGN_ABORTED,
    EntryKind.CAMPAIGN_ENDED,
}
WAVE_ENTRIES = {
    EntryKind.WAVE_ANNOUNCED,
    EntryKind.WAVE_UNANNOUNCED,
    EntryKind.WAVE_DIFFERS,
    EntryKind.WAVE_CLEARED,
    EntryKind.WAVE_SETTLED,
    EntryKind.WAVE_FAILED,
    EntryKind.WAVE_SKIPPED,
    EntryKind.WAVE_LEFT,
    EntryKind.WAVE_RETRIED,
}
GATE_ENTRIES = {EntryKind.GATE_CLOSED, EntryKind.GATE_OPENED}
VM_ENTRIES = {EntryKind.VM_ADDED, EntryKind.VM_CHANGED, EntryKind.VM_REMOVED, EntryKind.VM_MOVED}
IMPACT_ENTRIES = {
    EntryKind.IMPACT_BEGUN,
    EntryKind.IMPACT_DONE,
    EntryKind.IMPACT_RETRY,
    EntryKind.IMPACT_FAILED,
    EntryKind.IMPACT_UNKNOWN,
    EntryKind.IMPACT_RETRIED,
    EntryKind.IMPACT_GIVEN_UP,
}


FAULTS_CLEARED = "no fault any more"


def render_fault(fault: SetFault) -> str:
    """Return the fact that a fault was set, with its VM."""
    return f"{fault.kind.value} for {fault.vm or 'all VMs'}"


def render_document(scope: Scope, names: Names) -> list[str]:
    """Describe the document of the scope."""
    number = f"epoch {names.epoch(scope.id, scope.epoch)}, incarnation {scope.incarnation}"
    return [number, *(_render_event(event, names) for event in scope.events if event.announced)]


def _render_event(event: Event, names: Names) -> str:
    parts = [names.label(event.id), event.state.value, event.type.value, *event.vms, f"from {event.source.value}"]
    if event.state is State.SCHEDULED:
        parts.append(f"not_before {names.time(event.not_before)}")
    if (duration := announced_duration(event)) is not None:
        parts.append(f"lasting {format_duration(duration)}")
    return " ".join(parts)


def render_scope(scope: Scope, names: Names) -> list[str]:
    """Describe a scope with its VMs, its open and ended events and its request keys."""
    return [
        ", ".join(_scope_parts(scope, names)),
        *(_render_vm(vm) for vm in scope.roster),
        *(fact for event in scope.events for fact in _event_facts(event, names)),
        *(f"{names.label(ended.id)} ended {ended.outcome.value} at {names.time(ended.at)}" for ended in scope.ended),
        *(f"request key {item.key} answered at {names.time(item.at)}" for item in scope.seen_keys),
    ]


def _scope_parts(scope: Scope, names: Names) -> Iterator[str]:
    yield f"{scope.id} {scope.kind.value}"
    yield from _trait_parts(scope.traits)
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


def _trait_parts(traits: Traits) -> Iterator[str]:
    if traits.priority is not None:
        yield f"priority {traits.priority.value}"
    if traits.terminate_notice is not None:
        yield f"terminate-notice {format_duration(traits.terminate_notice)}"


def _render_vm(vm: Vm) -> str:
    return ", ".join(
        (f"{vm.name} in domain {vm.update_domain} on {vm.host or 'an unknown host'}", *_trait_parts(vm.traits))
    )


def _event_facts(event: Event, names: Names) -> Iterator[str]:
    label = names.label(event.id)
    reason = f" ({event.why})" if event.why else ""
    location = f"in domain {event.update_domain} on {event.host or 'an unknown host'}"
    yield f"{_render_event(event, names)}, {location}{'' if event.announced else ', unannounced'}"
    created = f"{names.time(event.created_at)} by {event.by}{reason}"
    yield f'{label} made {created}: {event.cause.value}, "{event.description}"'
    for approval in event.approvals:
        yield f"{label} approved {names.time(approval.at)} by {approval.vm}"
    if event.started_at is not None:
        yield f"{label} started {names.time(event.started_at)}"
    for impact in event.impacts:
        yield f"{label} {_render_impact(impact, names)}"


def _render_impact(impact: Impact, names: Names) -> str:
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
