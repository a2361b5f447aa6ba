"""The plan of a campaign: every wave with its times, hosts and VMs, before anything is announced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from forewarn.core.campaign.candidates import Group, PlanScope, amounts_of
from forewarn.core.campaign.exclusions import all_exclusions
from forewarn.core.campaign.limits import Amounts, Ceilings, Load, ceilings, is_unknown
from forewarn.core.campaign.pace import gap_of, length_of, notice_of
from forewarn.core.campaign.selection import Names, is_pattern
from forewarn.core.campaign.spec import LONGEST_CAMPAIGN, CampaignPolicy, CampaignSpec, Selection
from forewarn.core.campaign.timetable import Openings, Row, Timetable
from forewarn.core.campaign.windows import Span, Zones, longest_open, next_fit, starts
from forewarn.core.conditions import Conditions
from forewarn.core.duration import duration_text
from forewarn.core.errors import Invalid, NoticeTooShort
from forewarn.core.schedule import whole_second
from forewarn.core.text import counting_order

Progress = Callable[[int, int], None]
"""Is told now and then how many of the selected VMs have been dealt with, and how many there are."""

PROGRESS_STEPS = 100
NAMES_TOLD = 5
"""How many names a remark tells before it only counts."""


class PlannedWave(msgspec.Struct, frozen=True, kw_only=True):
    """One wave: an update domain of a scope."""

    scope: str
    n: int
    """It is the scope's n-th, from 1."""
    update_domain: int
    announce_at: datetime
    not_before: datetime
    ends_at: datetime
    """When it is expected to end."""
    hosts: tuple[str, ...]
    """Those that are known."""
    vms: tuple[str, ...]


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """VMs for which the policy leaves no place."""

    scope: str
    update_domain: int
    vms: tuple[str, ...]
    rule: str
    """The policy's key; `longest-campaign` where nothing but the year is too short."""
    by_how_much: str
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Each selected VM is in exactly one wave, or unplaced."""

    waves: tuple[PlannedWave, ...]
    """In the order of their starts."""
    unplaced: tuple[Unplaced, ...]
    ends_at: datetime | None
    """When the last wave is expected to end; None: there is no wave."""
    totals: Amounts
    """All that are selected: what percentages are of."""
    remarks: tuple[str, ...] = ()
    """What a person should know besides: names that select nothing, scopes that are held or stuck."""


class _Line(msgspec.Struct, frozen=True):
    """A scope on its way into the timetable."""

    scope: PlanScope
    groups: tuple[Group, ...]
    """Those that no limit refuses outright, one wave each."""
    row: Row


def plan(
    spec: CampaignSpec,
    fleet: Iterable[PlanScope],
    conditions: Conditions,
    *,
    now: datetime,
    zones: Zones,
    progress: Progress | None = None,
) -> Plan:
    """Place every selected VM, or say which rule leaves no place for it, and by how much.

    The same question has the same answer, in whatever order the fleet comes.
    """
    begin = _begin(spec, conditions, now)
    scopes = sorted(fleet, key=lambda scope: counting_order(scope.id))
    totals = amounts_of(scopes)
    if not totals.vms:
        raise Invalid("the selection fits no VM: `forewarn vm list` shows what there is")
    limits = ceilings(spec.policy, totals)
    lines = [_line(rank, scope, limits) for rank, scope in enumerate(scopes)]
    waves = tuple(_told(_placed(spec, lines, conditions, limits, begin, zones), totals.vms, progress))
    return Plan(
        waves=waves,
        unplaced=(*_too_large(lines, limits), *_too_late(spec, lines, conditions, begin, zones)),
        ends_at=max((wave.ends_at for wave in waves), default=None),
        totals=totals,
        remarks=tuple(_remarks(spec, scopes, conditions)),
    )


def _begin(spec: CampaignSpec, conditions: Conditions, now: datetime) -> datetime:
    """Return when the first wave may be announced; refuse what could never be."""
    begin = whole_second(now if spec.start_at is None else max(now, spec.start_at))
    if begin > now + LONGEST_CAMPAIGN:
        raise Invalid(f"start_at is at most {LONGEST_CAMPAIGN.days} days ahead")
    notice = notice_of(spec, conditions)
    minimum = conditions.policy.minimum_notice[spec.type] / conditions.policy.speed
    if notice < minimum and conditions.policy.enforce_notice:
        raise NoticeTooShort(spec.type.value, minimum, whole_second(begin + minimum), begin + notice)
    return begin


def _line(rank: int, scope: PlanScope, limits: Ceilings) -> _Line:
    groups = tuple(group for group in scope.groups if limits.keep(_alone(group)))
    loads = [Load(scope.id, group.hosts, len(group.vms)) for group in groups]
    return _Line(scope, groups, Row(rank, loads, [Span(busy.start, busy.end) for busy in scope.busy]))


def _alone(group: Group) -> Amounts:
    """Return what is in impact when nothing is but this."""
    return Amounts(1, len(group.hosts), len(group.vms))


def _placed(
    spec: CampaignSpec,
    lines: Sequence[_Line],
    conditions: Conditions,
    limits: Ceilings,
    begin: datetime,
    zones: Zones,
) -> Iterator[PlannedWave]:
    """Yield the waves that find a place, in the order of their starts."""
    notice, length = notice_of(spec, conditions), length_of(spec, conditions)
    openings = Openings(starts(spec.policy, begin + notice, length, zones))
    # The next wave of a scope is announced when the one before has ended: its notice takes as long, gap or not.
    timetable = Timetable(limits, openings, length=length, rest=max(gap_of(spec, conditions), notice))
    for line in lines:
        for busy in line.scope.busy:
            timetable.reserve(Load(line.scope.id, busy.hosts, busy.vms), Span(busy.start, busy.end))
        timetable.expect(line.row, begin + notice)
    for place in timetable.places(until=begin + LONGEST_CAMPAIGN):
        line = lines[place.rank]
        yield _wave(line.scope.id, line.groups[place.n - 1], place.n, place.at, notice=notice, length=length)


def _wave(
    scope: str, group: Group, n: int, not_before: datetime, *, notice: timedelta, length: timedelta
) -> PlannedWave:
    return PlannedWave(
        scope=scope,
        n=n,
        update_domain=group.update_domain,
        announce_at=not_before - notice,
        not_before=not_before,
        ends_at=not_before + length,
        hosts=tuple([host for host in group.hosts if not is_unknown(host)]),
        vms=group.vms,
    )


def _told(waves: Iterable[PlannedWave], total: int, progress: Progress | None) -> Iterator[PlannedWave]:
    """Pass the waves on, and tell now and then how many VMs that is."""
    done = told = 0
    for wave in waves:
        yield wave
        done += len(wave.vms)
        if progress is not None and (done - told) * PROGRESS_STEPS >= total:
            told = done
            progress(done, total)
    if progress is not None and told < total:
        progress(total, total)


def _too_large(lines: Iterable[_Line], limits: Ceilings) -> Iterator[Unplaced]:
    """Yield what would exceed a limit even if nothing else were in impact."""
    for line in lines:
        for group in line.scope.groups:
            if exceeded := limits.exceeded(_alone(group)):
                yield Unplaced(
                    scope=line.scope.id,
                    update_domain=group.update_domain,
                    vms=group.vms,
                    rule=exceeded[0].rule,
                    by_how_much=exceeded[0].by_how_much,
                    why=f"update domain {group.update_domain} goes as one wave: "
                    + "; ".join(one.alone for one in exceeded),
                )


def _too_late(
    spec: CampaignSpec, lines: Sequence[_Line], conditions: Conditions, begin: datetime, zones: Zones
) -> Iterator[Unplaced]:
    """Yield what has found no place in time."""
    if not any(line.row.left for line in lines):
        return
    closed = _closed(spec.policy, begin + notice_of(spec, conditions), length_of(spec, conditions), zones)
    for line in lines:
        rule, by_how_much, why = closed or _year_is_over(line)
        for group in line.groups[line.row.placed :]:
            yield Unplaced(
                scope=line.scope.id,
                update_domain=group.update_domain,
                vms=group.vms,
                rule=rule,
                by_how_much=by_how_much,
                why=why,
            )


def _closed(policy: CampaignPolicy, since: datetime, length: timedelta, zones: Zones) -> tuple[str, str, str] | None:
    """Say why not a single wave has a time in which it could start; None where one has."""
    if next_fit(policy, since, length, zones) is not None:
        return None
    without = msgspec.structs.replace(policy, blackouts=())
    rule = "must_end_inside" if next_fit(without, since, length, zones) is None else "blackouts"
    longest = longest_open(policy, since, zones)
    wanted, missing = duration_text(length), duration_text(length - longest)
    if not longest:
        return rule, f"{missing} missing", f"no time is open within {LONGEST_CAMPAIGN.days} days: {missing} missing"
    open_for = f"the longest time that is open is {duration_text(longest)}"
    return rule, f"{missing} too long", f"a wave is expected to take {wanted}, and {open_for}: {missing} too long"


def _year_is_over(line: _Line) -> tuple[str, str, str]:
    left = f"{line.row.left} of {len(line.groups)} waves left"
    return (
        "longest-campaign",
        left,
        f"{left} after {LONGEST_CAMPAIGN.days} days: allow more at once, longer windows or a shorter gap",
    )


def _remarks(spec: CampaignSpec, scopes: Sequence[PlanScope], conditions: Conditions) -> Iterator[str]:
    """Yield what a person should know who reads the plan."""
    selected = [scope for scope in scopes if scope.groups]
    hosts = {host for scope in selected for group in scope.groups for host in group.hosts}
    if nothing := _unmatched(spec.selection.scopes, [scope.id for scope in selected]):
        yield f"no VM is selected by {'scope' if len(nothing) == 1 else 'scopes'} {_names(nothing)}"
    if nothing := _unmatched(spec.selection.hosts, hosts):
        yield f"no VM is selected by {'host' if len(nothing) == 1 else 'hosts'} {_names(nothing)}"
    yield from _idle_exclusions(spec.selection, scopes)
    if conditions.held is not None:
        yield f"all maintenance is held by {conditions.held.by}: {conditions.held.reason}; waves wait for its release"
    if held := [f"{scope.id} (by {scope.held})" for scope in selected if scope.held]:
        yield f"held, so that their waves wait for release: {_names(held)}"
    if stuck := [scope.id for scope in selected if scope.stuck]:
        yield f"maintenance has failed and waits for a person, and further waves wait for it: {_names(stuck)}"


def _idle_exclusions(selection: Selection, scopes: Iterable[PlanScope]) -> Iterator[str]:
    fitting = {written for scope in scopes for written in scope.excluded}
    idle: dict[str, list[str]] = {}
    for kind, name in all_exclusions(selection):
        if (kind, name) not in fitting:
            idle.setdefault(kind, []).append(name)
    for kind, names in idle.items():
        yield f"nothing is excluded by {kind if len(names) == 1 else f'{kind}s'} {_names(names)}"


def _unmatched(written: Iterable[str], names: Iterable[str]) -> list[str]:
    there = set(names)
    return [one for one in written if one not in there and not (is_pattern(one) and _fits_any(one, there))]


def _fits_any(pattern: str, names: Iterable[str]) -> bool:
    fitting = Names((pattern,))
    return any(name in fitting for name in names)


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
