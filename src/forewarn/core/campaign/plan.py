"""The plan of a campaign: every wave with its times, hosts and VMs, before anything is announced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import itemgetter

import msgspec

from forewarn.core.campaign.calendar import Calendar, announce_at, wave_duration, wave_notice
from forewarn.core.campaign.expected_load import ExpectedLoad
from forewarn.core.campaign.limits import CampaignLimits, Counts, Load, Usage, is_unknown_host, resolve_limits
from forewarn.core.campaign.plan_input import PlanScope, WaveGroup, count_selected
from forewarn.core.campaign.selection import NameMatcher, all_exclusions, is_pattern
from forewarn.core.campaign.spec import MAX_CAMPAIGN_DURATION, CampaignPolicy, CampaignSpec, Selection
from forewarn.core.campaign.timetable import ScopeWaves, Timetable
from forewarn.core.campaign.windows import Span, ZoneLookup, longest_span, next_start
from forewarn.core.duration import format_duration
from forewarn.core.errors import Invalid, NoticeTooShort
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ceil_to_second
from forewarn.core.text import count_text, natural_sort_key

ProgressCallback = Callable[[int, int], None]
"""Called now and then with the number of VMs that have been planned, and the number of selected VMs."""

NOTHING_SELECTED = "the selection matches no VM: run `forewarn vm list` to see all VMs"

PROGRESS_STEPS = 100
MAX_NAMES_SHOWN = 5
"""How many names a remark lists; the others are only counted."""


class PlannedWave(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One wave: the selected VMs of an update domain of a scope."""

    scope: str
    n: int = msgspec.field(name="number")
    """The number of the wave in its scope, from 1. The operator API sends encoded waves unchanged, hence the name."""
    update_domain: int
    announce_at: datetime
    not_before: datetime
    ends_at: datetime
    """When it is expected to end."""
    hosts: tuple[str, ...]
    """The known hosts."""
    vms: tuple[str, ...]
    announced: bool = True
    """Whether its VMs would hear of it now."""


class UnplacedVms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """VMs for which the policy leaves no time."""

    scope: str
    update_domain: int
    vms: tuple[str, ...]
    rule: str
    """The policy key; `longest-campaign` if only the limit of a year is too short."""
    excess: str
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Each selected VM is in exactly one wave, or unplaced."""

    waves: tuple[PlannedWave, ...]
    """In the order of their starts."""
    unplaced: tuple[UnplacedVms, ...]
    ends_at: datetime | None
    """When the last wave is expected to end; None if there is no wave."""
    totals: Counts
    """All that are selected: the base of percentages."""
    unannounced: Counts = Counts()
    """Those of them that would not hear of it now: no document would show its events."""
    needs_consent: bool = False
    """Whether a start needs consent to that."""
    remarks: tuple[str, ...] = ()
    """Remarks for operators: names that select nothing, scopes that are held or stuck, or do not poll."""

    def by_scope(self) -> dict[str, list[PlannedWave]]:
        """Return the waves of each scope in their order; the scopes are in the order of their first waves.

        With 25,000 waves this takes 2 ms: it is for a start or a display, not for every step.
        """
        waves: dict[str, list[PlannedWave]] = {}
        for wave in self.waves:
            waves.setdefault(wave.scope, []).append(wave)
        return waves

    @property
    def unannounced_text(self) -> str:
        """How many scopes and VMs will not hear of it; empty if all will."""
        if not self.unannounced.scopes:
            return ""
        polling = self.totals.scopes - self.unannounced.scopes
        return (
            f"{polling} of {self.totals.scopes} scopes poll{'s' if polling == 1 else ''} for events: "
            f"{self.unannounced.vms} of {count_text(self.totals.vms, 'VM')} will not hear of it"
        )


class _ScopePlan(msgspec.Struct, frozen=True, gc=False):
    """A scope before it is added to the timetable."""

    scope: PlanScope
    groups: tuple[WaveGroup, ...]
    """The groups that exceed no limit alone, one wave each."""
    row: ScopeWaves


def plan(
    spec: CampaignSpec,
    fleet: Iterable[PlanScope],
    context: RuleContext,
    *,
    now: datetime,
    zones: ZoneLookup,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Place every selected VM in a wave, or report which policy key leaves no time for it, and by how much.

    The result does not depend on the order of the scopes.
    """
    begin = _begin(spec, context, now)
    scopes = sorted(fleet, key=lambda scope: natural_sort_key(scope.id))
    totals = count_selected(scopes)
    if not totals.vms:
        raise Invalid(NOTHING_SELECTED)
    limits = resolve_limits(spec.policy, totals)
    scope_plans = [_scope_plan(rank, scope, limits) for rank, scope in enumerate(scopes)]
    waves = tuple(_with_progress(_placed(spec, scope_plans, context, limits, begin, zones), totals.vms, progress))
    unannounced = count_selected(scope for scope in scopes if not scope.announced)
    whole = Plan(
        waves=waves,
        unplaced=(*_too_large(scope_plans, limits), *_too_late(spec, scope_plans, context, begin, zones)),
        ends_at=max((wave.ends_at for wave in waves), default=None),
        totals=totals,
        unannounced=unannounced,
        needs_consent=context.policy.enforce_notice and unannounced.scopes > 0,
        remarks=tuple(_remarks(spec, scopes, context)),
    )
    if not whole.unannounced.scopes:
        return whole
    remark = whole.unannounced_text + ("; to start it, consent with unannounced" if whole.needs_consent else "")
    return msgspec.structs.replace(whole, remarks=(*whole.remarks, remark))


def peak_counts(waves: Iterable[PlannedWave]) -> Counts:
    """Return the largest numbers of scopes, known hosts and VMs that are in waves at one time."""
    changes: list[tuple[datetime, bool, Load]] = []
    for wave in waves:
        load = Load(wave.scope, wave.hosts, len(wave.vms))
        changes += (wave.not_before, True, load), (wave.ends_at, False, load)
    usage, scopes, hosts, vms = Usage(), 0, 0, 0
    for _, comes, load in sorted(changes, key=itemgetter(0, 1)):  # a wave that ends makes room at once
        if comes:
            counts = usage.plus(load)
            scopes, hosts, vms = max(scopes, counts.scopes), max(hosts, counts.hosts), max(vms, counts.vms)
            usage.add(load)
        else:
            usage.remove(load)
    return Counts(scopes, hosts, vms)


def _begin(spec: CampaignSpec, context: RuleContext, now: datetime) -> datetime:
    """Return when the first wave may be announced; refuse a start that is too far ahead."""
    begin = announce_at(spec, now)
    if begin > now + MAX_CAMPAIGN_DURATION:
        raise Invalid(f"must be at most {MAX_CAMPAIGN_DURATION.days} days ahead", "start_at")
    notice, minimum = wave_notice(spec, context), context.policy.minimum_notice[spec.type]
    earliest = begin + context.policy.faster_notice(minimum)
    if begin + notice < earliest and context.policy.enforce_notice:
        raise NoticeTooShort(spec.type.value, format_duration(minimum), ceil_to_second(earliest), begin + notice)
    return begin


def _scope_plan(rank: int, scope: PlanScope, limits: CampaignLimits) -> _ScopePlan:
    groups = tuple(group for group in scope.groups if limits.allows(_alone(group)))
    loads = [Load(scope.id, group.hosts, len(group.vms)) for group in groups]
    return _ScopePlan(scope, groups, ScopeWaves(rank, loads, [Span(busy.start, busy.end) for busy in scope.busy]))


def _alone(group: WaveGroup) -> Counts:
    """Return the usage if only this group is in impact."""
    return Counts(1, len(group.hosts), len(group.vms))


def _placed(
    spec: CampaignSpec,
    scope_plans: Sequence[_ScopePlan],
    context: RuleContext,
    limits: CampaignLimits,
    begin: datetime,
    zones: ZoneLookup,
) -> Iterator[PlannedWave]:
    """Yield the placed waves, in the order of their starts."""
    first = begin + wave_notice(spec, context)
    calendar = Calendar(spec, context, zones, since=first)
    expected = ExpectedLoad(limits, calendar.length, at=first)
    timetable = Timetable(calendar, expected)
    for scope_plan in scope_plans:
        for busy in scope_plan.scope.busy:
            expected.add(Load(scope_plan.scope.id, busy.hosts, busy.vms), busy.start, busy.end)
        timetable.add(scope_plan.row, first)
    for placement in timetable.placements(until=begin + MAX_CAMPAIGN_DURATION):
        scope_plan = scope_plans[placement.rank]
        yield _wave(
            scope_plan.scope,
            scope_plan.groups[placement.n - 1],
            placement.n,
            placement.at,
            notice=calendar.notice,
            length=calendar.length,
        )


def _wave(
    scope: PlanScope, group: WaveGroup, n: int, not_before: datetime, *, notice: timedelta, length: timedelta
) -> PlannedWave:
    return PlannedWave(
        scope=scope.id,
        n=n,
        update_domain=group.update_domain,
        announce_at=not_before - notice,
        not_before=not_before,
        ends_at=not_before + length,
        hosts=tuple([host for host in group.hosts if not is_unknown_host(host)]),
        vms=group.vms,
        announced=scope.announced,
    )


def _with_progress(
    waves: Iterable[PlannedWave], total: int, progress: ProgressCallback | None
) -> Iterator[PlannedWave]:
    """Pass the waves through, and report progress now and then."""
    done = reported = 0
    for wave in waves:
        yield wave
        done += len(wave.vms)
        if progress is not None and (done - reported) * PROGRESS_STEPS >= total:
            reported = done
            progress(done, total)
    if progress is not None and reported < total:
        progress(total, total)


def _too_large(scope_plans: Iterable[_ScopePlan], limits: CampaignLimits) -> Iterator[UnplacedVms]:
    """Yield the groups that would exceed a limit even if nothing else were in impact."""
    for scope_plan in scope_plans:
        for group in scope_plan.scope.groups:
            if exceeded := limits.exceeded(_alone(group)):
                yield UnplacedVms(
                    scope=scope_plan.scope.id,
                    update_domain=group.update_domain,
                    vms=group.vms,
                    rule=exceeded[0].rule,
                    excess=exceeded[0].excess,
                    why=f"update domain {group.update_domain} is one wave: "
                    + "; ".join(one.wave_message for one in exceeded),
                )


def _too_late(
    spec: CampaignSpec, scope_plans: Sequence[_ScopePlan], context: RuleContext, begin: datetime, zones: ZoneLookup
) -> Iterator[UnplacedVms]:
    """Yield the groups that could not be placed in time."""
    if not any(scope_plan.row.left for scope_plan in scope_plans):
        return
    closed = _closed_reason(spec.policy, begin + wave_notice(spec, context), wave_duration(spec, context), zones)
    for scope_plan in scope_plans:
        rule, by_how_much, why = closed or _too_late_reason(scope_plan)
        for group in scope_plan.groups[scope_plan.row.placed :]:
            yield UnplacedVms(
                scope=scope_plan.scope.id,
                update_domain=group.update_domain,
                vms=group.vms,
                rule=rule,
                excess=by_how_much,
                why=why,
            )


def _closed_reason(
    policy: CampaignPolicy, since: datetime, length: timedelta, zones: ZoneLookup
) -> tuple[str, str, str] | None:
    """Return why no wave has a time in which it could start; None if one has."""
    if next_start(policy, since, length, zones) is not None:
        return None
    without = msgspec.structs.replace(policy, blackouts=())
    rule = "must_end_inside" if next_start(without, since, length, zones) is None else "blackouts"
    longest = longest_span(policy, since, zones)
    duration, missing = format_duration(length), format_duration(length - longest)
    if not longest:
        return (
            rule,
            f"{missing} missing",
            f"no window is open within {MAX_CAMPAIGN_DURATION.days} days: {missing} missing",
        )
    open_for = f"the longest open time is {format_duration(longest)}"
    return rule, f"{missing} too long", f"a wave is expected to take {duration}, and {open_for}: {missing} too long"


def _too_late_reason(scope_plan: _ScopePlan) -> tuple[str, str, str]:
    left = f"{scope_plan.row.left} of {len(scope_plan.groups)} waves left"
    return (
        "longest-campaign",
        left,
        f"{left} after {MAX_CAMPAIGN_DURATION.days} days: allow more at once, longer windows or a shorter gap",
    )


def _remarks(spec: CampaignSpec, scopes: Sequence[PlanScope], context: RuleContext) -> Iterator[str]:
    """Yield remarks for the operator who reads the plan."""
    selected = [scope for scope in scopes if scope.groups]
    hosts = {host for scope in selected for group in scope.groups for host in group.hosts}
    if nothing := _unmatched(spec.selection.scopes, [scope.id for scope in selected]):
        yield f"no VM is selected by {'scope' if len(nothing) == 1 else 'scopes'} {_join_names(nothing)}"
    if nothing := _unmatched(spec.selection.hosts, hosts):
        yield f"no VM is selected by {'host' if len(nothing) == 1 else 'hosts'} {_join_names(nothing)}"
    yield from _unused_exclusions(spec.selection, scopes)
    if context.hold is not None:
        yield f"all maintenance is held by {context.hold.by}: {context.hold.reason}; waves wait for its release"
    if held := [f"{scope.id} (by {scope.hold_text})" for scope in selected if scope.hold_text]:
        yield f"held, so their waves wait until the hold is released: {_join_names(held)}"
    if stuck := [scope.id for scope in selected if scope.stuck]:
        yield f"failed maintenance waits for a person, and further waves wait for it: {_join_names(stuck)}"


def _unused_exclusions(selection: Selection, scopes: Iterable[PlanScope]) -> Iterator[str]:
    fitting = {written for scope in scopes for written in scope.excluded}
    idle: dict[str, list[str]] = {}
    for kind, name in all_exclusions(selection):
        if (kind, name) not in fitting:
            idle.setdefault(kind, []).append(name)
    for kind, names in idle.items():
        yield f"nothing is excluded by {kind if len(names) == 1 else f'{kind}s'} {_join_names(names)}"


def _unmatched(written: Iterable[str], names: Iterable[str]) -> list[str]:
    there = set(names)
    return [one for one in written if one not in there and not (is_pattern(one) and _matches_any(one, there))]


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
    fitting = NameMatcher((pattern,))
    return any(name in fitting for name in names)


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
