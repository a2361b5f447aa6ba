"""Input of the planner: the selected VMs of each scope grouped into waves, and impacts that are already expected."""

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
    """The selected VMs of one update domain of a scope: what a wave hits."""

    update_domain: int
    vms: tuple[str, ...]
    hosts: tuple[str, ...]
    """Each once; VMs whose host is not known count as on one host of their own (`unknown_host`)."""


class EventLoad(msgspec.Struct, frozen=True, gc=False):
    """What an open event, of whatever cause, is expected to have in impact, and when."""

    start: datetime
    end: datetime
    hosts: tuple[str, ...]
    vms: int


class PlanScope(msgspec.Struct, frozen=True):
    """A scope as a plan sees it. One without groups matters by what is under way in it."""

    id: str
    groups: tuple[WaveGroup, ...] = ()
    """In the order of their turns."""
    busy: tuple[EventLoad, ...] = ()
    hold_text: str = ""
    """By whom and why, where an operator holds it."""
    stuck: bool = False
    """Whether maintenance has failed in it and waits for a person, with its update domain's turn in its hands."""
    excluded: tuple[tuple[str, str], ...] = ()
    """The exclusions that fit VMs of it, and none of a scope before."""


def plan_scopes(
    scopes: Iterable[Scope | ScopeSnapshot], spec: CampaignSpec, context: RuleContext, *, now: datetime
) -> Iterator[PlanScope]:
    """Yield the scopes that matter to the plan of a campaign. Give it the whole fleet."""
    selector, length = Selector(spec.selection), wave_duration(spec, context)
    exclusions = Exclusions(spec.selection)
    for scope in scopes:
        groups = _groups(scope.id, selector.select(scope))
        busy = tuple(_busy_span(scope.id, event, length, now) for event in scope.events)
        excluded = exclusions.match(scope)
        if groups or busy or excluded:
            hold_text = f"{scope.hold.by}: {scope.hold.reason}" if scope.hold is not None else ""
            stuck = any(event.is_planned and has_stuck_work(event) for event in scope.events)
            yield PlanScope(scope.id, groups, busy, hold_text, stuck, excluded)


def count_selected(scopes: Iterable[PlanScope]) -> Counts:
    """Return how much is selected."""
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
    """Return what is expected of an event. One that should be over by now is given as long again."""
    lasts = event.duration or length
    start = event.started_at or max(event.not_before, now)
    end = start + lasts if start + lasts > now else now + lasts
    host = event.host or unknown_host(scope, event.update_domain)
    return EventLoad(start.replace(microsecond=0), ceil_to_second(end), (host,), len(event.vms))
