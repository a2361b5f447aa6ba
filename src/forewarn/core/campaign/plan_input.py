"""Input of the planner: the selected VMs of each scope grouped into waves, and the expected load of open events."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from forewarn.core.campaign.calendar import wave_duration
from forewarn.core.campaign.limits import Counts, unknown_host
from forewarn.core.campaign.load import has_stuck_work
from forewarn.core.campaign.selection import Exclusions, Selector
from forewarn.core.campaign.snapshot import ScopeSnapshot, VmSnapshot
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.event import Event
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ceil_to_second
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm


class WaveGroup(msgspec.Struct, frozen=True, gc=False):
    """The selected VMs of one update domain of a scope: the VMs of a wave."""

    update_domain: int
    vms: tuple[str, ...]
    hosts: tuple[str, ...]
    """Each host once; VMs whose host is unknown count as one host of their own (`unknown_host`)."""


class EventLoad(msgspec.Struct, frozen=True, gc=False):
    """The expected load of an open event of any cause, and when."""

    start: datetime
    end: datetime
    hosts: tuple[str, ...]
    vms: int


class PlanScope(msgspec.Struct, frozen=True, gc=False):
    """A scope as input of the plan. A scope without groups matters only for the load of its open events."""

    id: str
    groups: tuple[WaveGroup, ...] = ()
    """In the order of their waves."""
    busy: tuple[EventLoad, ...] = ()
    hold_text: str = ""
    """Who holds the scope and why, if an operator holds it."""
    stuck: bool = False
    """Whether failed maintenance waits for a person and blocks the other update domains."""
    excluded: tuple[tuple[str, str], ...] = ()
    """The exclusions that match VMs of this scope, and of none before."""
    announced: bool = True
    """Whether the document of its VMs would show events now."""


def plan_scopes(
    scopes: Iterable[Scope | ScopeSnapshot], spec: CampaignSpec, context: RuleContext, *, now: datetime
) -> Iterator[PlanScope]:
    """Yield the scopes that matter to the plan of a campaign. Pass all scopes of the fleet."""
    selector, length = Selector(spec.selection), wave_duration(spec, context)
    exclusions = Exclusions(spec.selection)
    for scope in scopes:
        groups = _groups(scope.id, selector.select(scope))
        busy = tuple(_busy_span(scope.id, event, length, now) for event in scope.events)
        excluded = exclusions.match(scope)
        if groups or busy or excluded:
            hold_text = f"{scope.hold.by}: {scope.hold.reason}" if scope.hold is not None else ""
            stuck = any(event.is_planned and has_stuck_work(event) for event in scope.events)
            announced = context.policy.announces(enabled=scope.enabled)
            yield PlanScope(scope.id, groups, busy, hold_text, stuck, excluded, announced)


def count_selected(scopes: Iterable[PlanScope]) -> Counts:
    """Return the number of selected scopes, hosts and VMs."""
    selected = [scope for scope in scopes if scope.groups]
    hosts = {host for scope in selected for group in scope.groups for host in group.hosts}
    return Counts(len(selected), len(hosts), sum(len(group.vms) for scope in selected for group in scope.groups))


def _groups(scope: str, vms: Iterable[Vm | VmSnapshot]) -> tuple[WaveGroup, ...]:
    domains: dict[int, list[Vm | VmSnapshot]] = {}
    for vm in vms:
        domains.setdefault(vm.update_domain, []).append(vm)
    return tuple(_group(scope, domain, domains[domain]) for domain in sorted(domains))


def _group(scope: str, domain: int, vms: Sequence[Vm | VmSnapshot]) -> WaveGroup:
    hosts = dict.fromkeys([vm.host or unknown_host(scope, domain) for vm in vms])
    return WaveGroup(domain, tuple([vm.name for vm in vms]), tuple(hosts))


def _busy_span(scope: str, event: Event, length: timedelta, now: datetime) -> EventLoad:
    """Return the expected load of an event. If it should have ended already, it is expected to take as long again."""
    lasts = event.duration or length
    start = event.started_at or max(event.not_before, now)
    end = start + lasts if start + lasts > now else now + lasts
    host = event.host or unknown_host(scope, event.update_domain)
    return EventLoad(start.replace(microsecond=0), ceil_to_second(end), (host,), len(event.vms))
