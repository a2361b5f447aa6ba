"""Simulation of one cell: things happen to its VMs in virtual time, and the real rules decide what follows.

Polls are too many to run one by one: each document is encoded once, by the real code, for the first poll that gets it,
and the polls that get the same bytes again are counted.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from time import process_time
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from forewarn.core.approval import approve
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import Event, EventType, Source
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done
from forewarn.core.impact_lifecycle import begin, impacts_to_begin, settle
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import tick, wake_at
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster
from forewarn.testing.simulation.campaign import SimulatedCampaign
from forewarn.testing.simulation.layout import (
    FleetLayout,
    host_name,
    host_number,
    moment_at,
    scope_name,
    scope_number,
)
from forewarn.testing.simulation.load import CellCounters
from forewarn.wire.document import encode_document
from forewarn.wire.request import DocumentRequest, RequestHead, route

R = TypeVar("R")

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400.0

FREEZES_PER_HOST = 1 / 10
FAILURES_PER_HOST = 1 / 500
RESTARTS_PER_VM = 1 / 200
EVICTIONS_PER_VM = 1 / 1_000
"""How often these happen, per day: the maintenance and the failure of a host affect all VMs on it."""

CAMPAIGN_SHARE = 0.05
"""The share of the scopes that campaigns reboot in one simulation."""

SCOPES_PER_CAMPAIGN = 500
CAMPAIGN_START = 3_600.0
CAMPAIGN_INTERVAL = 600.0

TICK = 0.001
"""The shortest time after which something is looked at again, in seconds."""

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
POLL = RequestHead("GET", TARGET, (("Metadata", "true"), ("Host", "169.254.169.254")))
BY = "simulation"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Scope).decode


class Occurrence(StrEnum):
    """What happens at a time."""

    HOST_MAINTAINED = "host-maintained"
    HOST_FAILED = "host-failed"
    RESTART = "restart"
    EVICTION = "eviction"
    CAMPAIGN = "campaign"
    APPROVAL = "approval"
    WAKE = "wake"
    DONE = "done"


class CellResult(NamedTuple):
    """What has happened in a cell, and what it had to carry."""

    counts: dict[str, int]
    counters: CellCounters
    polls: float
    rule_seconds: float
    """The computing time of the rules and of encoding what is saved, on this machine."""
    document_seconds: float
    """The computing time of polls: parsing the request, and encoding each document once."""


class CellSimulation:
    """One cell for some hours."""

    def __init__(self, *, vms: int, cell: int, hours: float, seed: int) -> None:
        self._layout = FleetLayout(vms=vms, cell=cell, seed=seed)
        self._random = random.Random(f"{seed}/{cell}")  # noqa: S311 - reproducible, no secret
        self._seconds = hours * 3_600
        self._counters = CellCounters(hosts=self._layout.hosts, seconds=int(self._seconds))
        self._context = RuleContext()
        self._now = 0.0
        self._queue: list[tuple[float, int, Occurrence, tuple[str, ...]]] = []
        self._order = 0
        self._open: dict[str, Scope] = {}
        """The scopes with open events."""
        self._quiet: dict[str, bytes | None] = {}
        """The scopes that have changed before and have no open events, encoded; None: removed."""
        self._vm_hosts: dict[str, tuple[Roster, tuple[int, ...]]] = {}
        self._documents: dict[str, int] = {}
        """The sizes of the documents that have changed."""
        self._moved: dict[int, int] = {}
        self._arrived: dict[int, set[int]] = {}
        self._counts = dict.fromkeys(
            ("events", "approvals", "impacts", "host_failures", "host_maintenances", "campaigns", "waves", "documents"),
            0,
        )
        self._wakes: dict[str, float] = {}
        """The times at which scopes and campaigns wake; other planned times are ignored."""
        self._load = FleetLoad()
        self._campaigns: list[SimulatedCampaign] = []
        self._campaign_of: dict[str, SimulatedCampaign] = {}
        self._rule_seconds = 0.0
        self._document_seconds = 0.0
        self._empty_document = len(encode_document(self._layout.create_scope(0, START), "2020-07-01"))

    def run(self, on_progress: Callable[[float], None]) -> CellResult:
        """Simulate the cell; report the hours that have passed."""
        self._place_vms()
        self._plan_occurrences()
        hour = 0
        while self._queue:
            self._now, _, occurrence, names = heappop(self._queue)
            if int(self._now / 3_600) > hour:
                hour = int(self._now / 3_600)
                on_progress(hour)
            self._happen(occurrence, names)
            for campaign in self._campaigns:
                if campaign.needs_step:
                    self._step(campaign)
        on_progress(self._seconds / 3_600)
        polls = sum(self._counters.poll_rates) * self._seconds
        return CellResult(self._counts, self._counters, polls, self._rule_seconds, self._document_seconds)

    # What a campaign needs.

    def apply(self, scope: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to a scope, and let everything follow that a service would do."""
        before = self._load_scope(scope)
        began = process_time()
        change = rule(before)
        after = change.scope
        size = 0 if after is None else len(_encode(after))
        size += sum(len(_encode(entry)) for entry in change.entries)
        self._rule_seconds += process_time() - began
        if after is before:
            return change.result
        self._counters.save(self._now, size, len(change.entries), set(self._hosts_of(scope, before.roster)))
        self._follow_vms(scope, before, after)
        self._follow_document(scope, before, after)
        self._store(scope, after)
        if (campaign := self._campaign_of.get(scope)) is not None:
            campaign.on_change(scope, change.entries)
        for entry in change.entries:
            if entry.kind is EntryKind.SCHEDULED or (entry.kind is EntryKind.STARTED and "type" in entry.facts):
                self._counts["events"] += 1
                self._plan_approval(scope, entry.event or "")
        if after is not None:
            self._continue(scope, after)
        return change.result

    def find(self, scope: str) -> Scope | None:
        """Return a scope, or None if it was removed."""
        if scope in self._quiet and self._quiet[scope] is None:
            return None
        return self._load_scope(scope)

    def save_campaign(self, size: int, lines: int) -> None:
        """Count the save of a campaign."""
        self._counters.save(self._now, size, lines)

    # What happens.

    def _plan_occurrences(self) -> None:
        layout = self._layout
        self._plan_all(Occurrence.HOST_MAINTAINED, layout.hosts, FREEZES_PER_HOST)
        self._plan_all(Occurrence.HOST_FAILED, layout.hosts, FAILURES_PER_HOST)
        self._plan_all(Occurrence.RESTART, layout.vms, RESTARTS_PER_VM)
        self._plan_all(Occurrence.EVICTION, layout.vms, EVICTIONS_PER_VM)
        selected = self._random.sample(range(layout.scopes), int(layout.scopes * CAMPAIGN_SHARE))
        for number, start in enumerate(range(0, len(selected), SCOPES_PER_CAMPAIGN)):
            names = tuple(map(scope_name, sorted(selected[start : start + SCOPES_PER_CAMPAIGN])))
            self._plan(CAMPAIGN_START + number * CAMPAIGN_INTERVAL, Occurrence.CAMPAIGN, names)

    def _plan_all(self, occurrence: Occurrence, population: int, per_day: float) -> None:
        """Plan something at random times for random members of a population."""
        at, rate = 0.0, population * per_day / DAY
        while (at := at + self._random.expovariate(rate)) < self._seconds:
            self._plan(at, occurrence, (str(self._random.randrange(population)),))

    def _plan(self, at: float, occurrence: Occurrence, names: tuple[str, ...]) -> None:
        if at < self._seconds:
            self._order += 1
            heappush(self._queue, (at, self._order, occurrence, names))

    def _happen(self, occurrence: Occurrence, names: tuple[str, ...]) -> None:
        first = names[0]
        match occurrence:
            case Occurrence.HOST_MAINTAINED:
                self._counts["host_maintenances"] += 1
                self._affect_host(int(first), EventType.FREEZE, failure=False)
            case Occurrence.HOST_FAILED:
                self._counts["host_failures"] += 1
                self._affect_host(int(first), EventType.REDEPLOY, failure=True)
            case Occurrence.RESTART:
                self._affect_vm(int(first), EventType.REBOOT, Source.USER)
            case Occurrence.EVICTION:
                if self._layout.profile(self._layout.scope_of(int(first))).is_low_priority:
                    self._affect_vm(int(first), EventType.PREEMPT, Source.PLATFORM)
            case Occurrence.CAMPAIGN:
                self._start_campaign(names)
            case Occurrence.APPROVAL:
                self._approve(first, names[1])
            case Occurrence.WAKE:
                if self._wakes.get(first) != self._now:
                    return
                del self._wakes[first]
                if first.startswith("campaign "):
                    self._step(self._campaigns[int(first.removeprefix("campaign "))])
                elif first in self._open:
                    self._try_apply(
                        first, lambda scope: tick(scope, self._context, now=self._moment, seen_at=self._seen(scope))
                    )
            case Occurrence.DONE:
                self._finish_work(*names)

    def _affect_host(self, host: int, type_: EventType, *, failure: bool) -> None:
        """Announce the maintenance of a host, or report its failure, to all scopes with VMs on it."""
        affected: dict[str, list[str]] = {}
        for vm in sorted(self._vms_on(host)):
            scope = self._layout.scope_of(vm)
            name = scope_name(scope)
            affected.setdefault(name, []).append(f"{name}-{vm - self._layout.vms_of(scope).start}")
        spec = EVENT_TYPES[type_]
        duration = spec.default_duration if spec.simulates_duration else None
        for name, vms in affected.items():
            self._schedule(name, tuple(vms), type_, Source.PLATFORM, duration=duration, failure=failure)

    def _affect_vm(self, vm: int, type_: EventType, source: Source) -> None:
        scope = self._layout.scope_of(vm)
        name = scope_name(scope)
        self._schedule(name, (f"{name}-{vm - self._layout.vms_of(scope).start}",), type_, source)

    def _schedule(
        self,
        scope: str,
        vms: tuple[str, ...],
        type_: EventType,
        source: Source,
        *,
        duration: timedelta | None = None,
        failure: bool = False,
    ) -> None:
        found = self.find(scope)
        present = () if found is None else tuple(vm for vm in vms if found.roster.find(vm) is not None)
        if not present:
            return
        request = ScheduleRequest(
            id=self._request_id(),
            type=type_,
            vms=present,
            by=BY,
            source=source,
            duration=duration,
            failure=failure,
            unannounced=True,
        )
        self._try_apply(scope, lambda value: schedule(value, request, self._context, now=self._moment))

    def _approve(self, scope: str, event: str) -> None:
        found = self.find(scope)
        open_event = None if found is None else found.find_event(event)
        if found is None or open_event is None or not open_event.announced:
            return
        vm = found.roster.find(open_event.vms[0])
        if vm is None or vm.host is None:
            return
        self._counts["approvals"] += 1
        self._counters.command(self._now, host_number(vm.host))
        self._try_apply(scope, lambda value: approve(value, vm.name, (event,), self._context, now=self._moment))

    def _finish_work(self, scope: str, event: str, vm: str, host: str) -> None:
        self._counters.command(self._now, int(host))
        found = self.find(scope)
        open_event = None if found is None else found.find_event(event)
        if open_event is None:
            return
        new_host = self._random.randrange(self._layout.hosts) if EVENT_TYPES[open_event.type].moves_vm else None
        outcome = Done(None if new_host is None else host_name(new_host))
        self._try_apply(scope, lambda value: settle(value, event, vm, outcome, self._context, now=self._moment))

    # Campaigns.

    def _start_campaign(self, names: tuple[str, ...]) -> None:
        scopes = {name: scope for name in names if (scope := self.find(name)) is not None}
        number = len(self._campaigns)
        campaign = SimulatedCampaign(
            f"kernel-{number}", scopes, self, self._load, id_=self._request_id(), now=self._moment
        )
        self._campaigns.append(campaign)
        self._campaign_of |= dict.fromkeys(campaign.scopes, campaign)
        self._counts["campaigns"] += 1
        self._counts["waves"] += campaign.waves

    def _step(self, campaign: SimulatedCampaign) -> None:
        campaign.step(self._moment)
        if campaign.wake_at is not None and not campaign.record.state.is_over:
            self._plan_wake(f"campaign {self._campaigns.index(campaign)}", campaign.wake_at)

    # What follows from a change.

    def _continue(self, scope: str, value: Scope) -> None:
        """Begin work that can begin, and plan the next time at which time alone changes the scope."""
        if not value.events:
            return
        if to_begin := impacts_to_begin(value, now=self._moment):
            event, impact = to_begin[0]
            self._begin(scope, event, impact.vm)  # the others follow from its change
            return
        at = wake_at(value, self._context, now=self._moment, seen_at=self._seen(value))
        if at is not None:
            self._plan_wake(scope, at)

    def _plan_wake(self, name: str, at: datetime) -> None:
        """Plan to look at a scope or a campaign at a time, unless that is planned for an earlier one."""
        seconds = max((at - START).total_seconds(), self._now + TICK)
        if seconds < self._wakes.get(name, self._seconds):
            self._wakes[name] = seconds
            self._plan(seconds, Occurrence.WAKE, (name,))

    def _begin(self, scope: str, event: Event, vm: str) -> None:
        found = self.find(scope)
        machine = None if found is None else found.roster.find(vm)
        if machine is None or machine.host is None:
            return
        host = host_number(machine.host)
        self._counts["impacts"] += 1
        self._counters.command(self._now, host)
        self._try_apply(scope, lambda value: begin(value, event.id, vm, now=self._moment))
        lasts = event.duration or EVENT_TYPES[event.type].default_duration
        self._plan(self._now + lasts.total_seconds(), Occurrence.DONE, (scope, event.id, vm, str(host)))

    def _plan_approval(self, scope: str, event: str) -> None:
        delay = self._layout.profile(scope_number(scope)).approval_delay
        if delay is not None:
            self._plan(self._now + delay, Occurrence.APPROVAL, (scope, event))

    def _follow_document(self, scope: str, before: Scope, after: Scope | None) -> None:
        """Let the VMs of a scope poll their new document."""
        interval = self._layout.profile(scope_number(scope)).poll_interval
        if (
            interval is None
            or after is None
            or (before.incarnation, before.events) == (after.incarnation, after.events)
        ):
            return
        began = process_time()
        request = route(POLL)
        assert isinstance(request, DocumentRequest)  # noqa: S101 - a correct poll
        size = len(encode_document(after, request.version))
        self._document_seconds += process_time() - began
        self._counts["documents"] += 1
        grown = size - self._document_size(scope)
        self._documents[scope] = size
        for host in self._hosts_of(scope, after.roster):
            self._counters.change_document(host, grown / interval)

    def _follow_vms(self, scope: str, before: Scope, after: Scope | None) -> None:
        """Move VMs that have another host now, and remove those that are gone."""
        if after is not None and after.roster is before.roster:
            return
        interval = self._layout.profile(scope_number(scope)).poll_interval
        rate = 0.0 if interval is None else 1 / interval
        size = self._document_size(scope)
        for vm in before.roster:
            now = None if after is None else after.roster.find(vm.name)
            if now is not None and now.host == vm.host:
                continue
            number = self._layout.vm_number(scope_number(scope), vm.name)
            old = host_number(vm.host or "")
            self._arrived.get(old, set()).discard(number)
            self._moved[number] = -1
            self._counters.place(old, rate, size, -1)
            if now is not None and now.host is not None:
                self._moved[number] = host_number(now.host)
                self._arrived.setdefault(host_number(now.host), set()).add(number)
                self._counters.place(host_number(now.host), rate, size, 1)

    # State.

    def _place_vms(self) -> None:
        layout = self._layout
        for scope in range(layout.scopes):
            interval = layout.profile(scope).poll_interval
            rate = 0.0 if interval is None else 1 / interval
            for vm in layout.vms_of(scope):
                self._counters.place(layout.host_of(vm), rate, self._empty_document, 1)

    def _vms_on(self, host: int) -> set[int]:
        return {vm for vm in self._layout.vms_on(host) if vm not in self._moved} | self._arrived.get(host, set())

    def _hosts_of(self, scope: str, roster: Roster) -> tuple[int, ...]:
        """Return the hosts of the VMs of a scope, one for each VM."""
        known, hosts = self._vm_hosts.get(scope, (None, ()))
        if known is not roster:
            hosts = tuple(host_number(vm.host) for vm in roster if vm.host is not None)
            self._vm_hosts[scope] = roster, hosts
        return hosts

    def _load_scope(self, scope: str) -> Scope:
        if (found := self._open.get(scope)) is not None:
            return found
        encoded = self._quiet.get(scope)
        return self._layout.create_scope(scope_number(scope), START) if encoded is None else _decode(encoded)

    def _store(self, scope: str, value: Scope | None) -> None:
        self._load.update(scope, value)
        if value is not None and value.events:
            self._open[scope] = value
            return
        self._open.pop(scope, None)
        self._vm_hosts.pop(scope, None)
        self._quiet[scope] = None if value is None else _encode(value)

    def _try_apply(self, scope: str, rule: Callable[[Scope], Change[R]]) -> None:
        """Apply a rule; a refusal, such as too many operations at once, is an answer too."""
        try:
            self.apply(scope, rule)
        except CoreError:
            self._counts["refused"] = self._counts.get("refused", 0) + 1

    def _document_size(self, scope: str) -> int:
        return self._documents.get(scope, self._empty_document)

    def _seen(self, scope: Scope) -> datetime | None:
        return self._moment if scope.enabled else None

    def _request_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128))).upper()

    @property
    def _moment(self) -> datetime:
        return moment_at(START, self._now)
