"""Invariants of a campaign plan for property tests: check each wave and each time against fleet and policy."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from forewarn.core.campaign.plan import Plan, PlannedWave, UnplacedVms
from forewarn.core.campaign.selection import is_selected
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit
from forewarn.core.campaign.windows import ZoneLookup, next_start
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope

MINUTE = timedelta(minutes=1)
VmKey = tuple[str, str]
"""A VM: its scope and its name."""


def may_start(policy: CampaignPolicy, moment: datetime, length: timedelta, zones: ZoneLookup) -> bool:
    """Return whether a wave of this length may start at this time."""
    return next_start(policy, moment, length, zones) == moment


def is_open(policy: CampaignPolicy, moment: datetime, zones: ZoneLookup) -> bool:
    """Return whether a wave that takes no time may start at this time."""
    return may_start(policy, moment, timedelta(0), zones)


class PlanInvariants:
    """Checks a plan against its fleet and policy."""

    def __init__(self, spec: CampaignSpec, fleet: Sequence[Scope], conditions: RuleContext, now: datetime) -> None:
        self.spec, self.policy, self.conditions = spec, spec.policy, conditions
        self.fleet = {scope.id: scope for scope in fleet}
        self.begin = now if spec.start_at is None else max(now, spec.start_at)
        self.now = now
        self.hosts: dict[VmKey, str] = {
            (scope.id, vm.name): vm.host or f"unknown to {scope.id} {vm.update_domain}"
            for scope in fleet
            for vm in scope.roster
        }
        self.selected = [
            (scope.id, vm.name) for scope in fleet for vm in scope.roster if is_selected(spec.selection, scope, vm)
        ]

    def check(self, plan: Plan) -> None:
        """Check everything."""
        self.check_every_vm_is_placed_or_unplaced_once(plan)
        for wave in plan.waves:
            self.check_wave(wave)
        for scope in self.fleet:
            self.check_scope([wave for wave in plan.waves if wave.scope == scope])
        for moment in self.moments(plan):
            self.check_limits(plan, moment)
        assert list(plan.waves) == sorted(plan.waves, key=lambda wave: wave.not_before)
        assert plan.ends_at == max((wave.ends_at for wave in plan.waves), default=None)

    def check_every_vm_is_placed_or_unplaced_once(self, plan: Plan) -> None:
        parts: list[PlannedWave | UnplacedVms] = [*plan.waves, *plan.unplaced]
        assert Counter((part.scope, vm) for part in parts for vm in part.vms) == Counter(self.selected)
        assert all(part.vms for part in parts)
        assert (plan.totals.scopes, plan.totals.hosts, plan.totals.vms) == self.totals

    @property
    def totals(self) -> tuple[int, int, int]:
        return (
            len({scope for scope, _ in self.selected}),
            len({self.hosts[place] for place in self.selected}),
            len(self.selected),
        )

    def check_wave(self, wave: PlannedWave) -> None:
        vms = [self.fleet[wave.scope].vm(name) for name in wave.vms]
        assert {vm.update_domain for vm in vms} == {wave.update_domain}
        assert set(wave.hosts) == {vm.host for vm in vms if vm.host is not None}
        assert len(set(wave.hosts)) == len(wave.hosts)
        assert wave.not_before.microsecond == 0, "the wire shows whole seconds"
        assert wave.announce_at >= self.begin
        assert wave.not_before - wave.announce_at >= self.notice
        assert wave.ends_at - wave.not_before >= self.spec.expected / self.conditions.policy.speed
        self.check_time(wave)

    @property
    def notice(self) -> timedelta:
        usual = self.conditions.policy.minimum_notice[self.spec.type]
        return (usual if self.policy.notice is None else self.policy.notice) / self.conditions.policy.speed

    def check_time(self, wave: PlannedWave) -> None:
        windows = CampaignPolicy(windows=self.policy.windows, zone=self.policy.zone)
        assert is_open(windows, wave.not_before, ZoneInfo)
        if self.policy.must_end_inside:
            minutes = (wave.ends_at - wave.not_before) // MINUTE
            assert all(is_open(windows, wave.not_before + n * MINUTE, ZoneInfo) for n in range(minutes))
            assert is_open(windows, wave.ends_at - timedelta(microseconds=1), ZoneInfo)
        assert not any(wave.not_before < out.end and wave.ends_at > out.start for out in self.policy.blackouts)

    def check_scope(self, waves: Sequence[PlannedWave]) -> None:
        assert [wave.n for wave in waves] == list(range(1, len(waves) + 1))
        gap = self.policy.gap / self.conditions.policy.speed
        for earlier, later in pairwise(waves):
            assert earlier.update_domain != later.update_domain
            assert later.not_before - earlier.ends_at >= gap
            assert later.announce_at >= earlier.ends_at
        for wave in waves:
            for start, end, _ in self.busy(self.fleet[wave.scope]):
                assert end <= wave.not_before or start >= wave.ends_at, "no other event of the scope overlaps the wave"

    def busy(self, scope: Scope) -> Iterable[tuple[datetime, datetime, list[VmKey]]]:
        """Yield the expected impacts of open events: when, and which VMs."""
        for event in scope.events:
            lasts = event.duration or self.spec.expected / self.conditions.policy.speed
            start = event.started_at or max(event.not_before, self.now)
            end = start + lasts if start + lasts > self.now else self.now + lasts
            yield start, end, [(scope.id, vm) for vm in event.vms]

    def moments(self, plan: Plan) -> set[datetime]:
        """Return every time at which the load can increase."""
        others = {start for scope in self.fleet.values() for start, _, _ in self.busy(scope)}
        return others | {wave.not_before for wave in plan.waves}

    def check_limits(self, plan: Plan, moment: datetime) -> None:
        """Count the load. Times without a wave are not the plan's responsibility."""
        ours = [wave for wave in plan.waves if wave.not_before <= moment < wave.ends_at]
        if not ours:
            return
        vms = [(wave.scope, vm) for wave in ours for vm in wave.vms]
        for scope in self.fleet.values():
            vms += [vm for start, end, busy in self.busy(scope) if start <= moment < end for vm in busy]
        in_impact = {
            "scopes": len({scope for scope, _ in vms}),
            "hosts": len({self.hosts[vm] for vm in vms}),
            "vms": len(vms),
        }
        for what, limit in self.limits.items():
            assert in_impact[what] <= limit, f"{what} at {moment}"

    @property
    def limits(self) -> Mapping[str, int]:
        scopes, hosts, vms = self.totals
        said: dict[str, tuple[Limit | None, int]] = {
            "scopes": (self.policy.scopes_at_once, scopes),
            "hosts": (self.policy.hosts_at_once, hosts),
            "vms": (self.policy.vms_at_once, vms),
        }
        return {what: limit.resolve(total) for what, (limit, total) in said.items() if limit is not None}
