"""Random fleets and policies: no plan breaks a rule, every VM is placed once or unplaced with a correct reason."""

import re
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forewarn.core.campaign.calendar import wave_duration, wave_gap, wave_notice
from forewarn.core.campaign.plan import Plan, UnplacedVms, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.snapshot import ScopeSnapshot
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, CampaignSpec, Limit, Selection
from forewarn.core.campaign.windows import longest_span, next_start
from forewarn.core.duration import parse_duration
from forewarn.core.event import EventType
from forewarn.core.event_type import MAINTENANCE_TYPES
from forewarn.core.lifecycle import tick
from forewarn.core.policy import EMULATOR, PRODUCTION, Policy, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from forewarn.core.vm import Traits, Vm
from tests.core.builders import a_request, a_scope, a_vm, guid, saved_scope
from tests.core.campaign.plan_invariants import PlanInvariants
from tests.core.campaign.test_windows import WINDOWS
from tests.support.examples import examples

# Three days before the DST change in Europe.
NOW = datetime(2030, 3, 28, 9, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

HOSTS = st.sampled_from([None, "hv-0", "hv-1", "hv-2", "hv-3"])
TAGS = st.sampled_from([None, {"env": "prod"}, {"env": "test"}])
LIMITS = st.one_of(
    st.none(), st.integers(1, 6).map(Limit.parse), st.sampled_from(["1%", "20%", "50%", "100%"]).map(Limit.parse)
)
MINUTES = st.integers(0, 3 * 24 * 60).map(lambda minutes: NOW + minutes * MINUTE)
BLACKOUTS = st.builds(
    lambda start, length: Blackout(start=start, end=start + length),
    MINUTES,
    st.sampled_from([MINUTE, 7 * HOUR, timedelta(days=3)]),
)
POLICIES = st.builds(
    CampaignPolicy,
    gap=st.sampled_from([timedelta(0), timedelta(seconds=1), 30 * MINUTE, 5 * HOUR]),
    notice=st.sampled_from([None, 15 * MINUTE, 3 * HOUR]),
    expected=st.sampled_from([None, timedelta(seconds=1), 5 * MINUTE, 50 * MINUTE, 4 * HOUR]),
    scopes_at_once=LIMITS,
    hosts_at_once=LIMITS,
    vms_at_once=LIMITS,
    windows=st.one_of(st.just(()), st.lists(WINDOWS, min_size=1, max_size=2).map(tuple)),
    blackouts=st.lists(BLACKOUTS, max_size=2).map(tuple),
    must_end_inside=st.booleans(),
)
SELECTIONS = st.sampled_from(
    [
        Selection(all=True),
        Selection(all=True, exclude_tags={"env": "prod"}),
        Selection(scopes=("s1", "s[23]")),
        Selection(hosts=("hv-0", "hv-1"), tags={"env": "test"}, exclude_vms=("s2/v0",)),
    ]
)
SPECS = st.builds(
    CampaignSpec,
    name=st.just("kernel"),
    type=st.sampled_from(MAINTENANCE_TYPES),
    selection=SELECTIONS,
    duration=st.sampled_from([None, 90 * timedelta(seconds=1)]),
    policy=POLICIES,
    start_at=st.one_of(st.none(), MINUTES),
)
CONDITIONS = st.sampled_from([PRODUCTION, EMULATOR, Policy(speed=7.0)]).map(lambda policy: RuleContext(policy=policy))


@st.composite
def scopes(draw: st.DrawFn, id_: str) -> Scope:
    """Draw a scope: some VMs, and events that are already Started or Scheduled."""
    vms = draw(st.lists(st.tuples(st.integers(0, 3), HOSTS, TAGS), min_size=1, max_size=7))
    scope = a_scope([_vm(number, *drawn) for number, drawn in enumerate(vms)], id=id_, changed_at=NOW - HOUR)
    for number in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        named = draw(st.lists(st.sampled_from([vm.name for vm in scope.roster]), min_size=1, max_size=3))
        ask = a_request(
            *named,
            id=guid((id_, number)),
            type=draw(st.sampled_from([EventType.REBOOT, EventType.FREEZE])),
            notice=draw(st.sampled_from([timedelta(0), 20 * MINUTE, 70 * MINUTE, timedelta(days=1)])),
            duration=draw(st.sampled_from([None, 10 * MINUTE, 26 * HOUR])),
        )
        made_at = NOW - draw(st.sampled_from([timedelta(seconds=0.25), 40 * MINUTE]))
        scope = saved_scope(schedule(scope, ask, RuleContext(policy=EMULATOR), now=made_at))
    return saved_scope(tick(scope, RuleContext(policy=EMULATOR), now=NOW))


def _vm(number: int, domain: int, host: str | None, tags: dict[str, str] | None) -> Vm:
    return a_vm(f"v{number}", update_domain=domain, host=host, traits=Traits(tags=tags))


FLEETS = st.integers(1, 6).flatmap(lambda size: st.tuples(*(scopes(f"s{number}") for number in range(size))))


def planned(spec: CampaignSpec, fleet: tuple[Scope, ...], conditions: RuleContext) -> Plan:
    return plan(spec, plan_scopes(fleet, spec, conditions, now=NOW), conditions, now=NOW, zones=ZoneInfo)


@settings(max_examples=examples(120))
@given(spec=SPECS, fleet=FLEETS, conditions=CONDITIONS)
def test_no_plan_breaks_a_policy_and_every_vm_occurs_once(
    spec: CampaignSpec, fleet: tuple[Scope, ...], conditions: RuleContext
) -> None:
    invariants = PlanInvariants(spec, fleet, conditions, NOW)
    assume(invariants.selected)
    made = planned(spec, fleet, conditions)
    invariants.check(made)
    assert plan(spec, plan_scopes(seen(fleet), spec, conditions, now=NOW), conditions, now=NOW, zones=ZoneInfo) == made
    for unplaced in made.unplaced:
        check_reason(unplaced, invariants)


def seen(fleet: tuple[Scope, ...]) -> list[ScopeSnapshot]:
    """Return the fleet as snapshots, which a planning process reads."""
    return [msgspec.json.decode(msgspec.json.encode(scope), type=ScopeSnapshot) for scope in fleet]


def check_reason(unplaced: UnplacedVms, invariants: PlanInvariants) -> None:
    """Check that an unplaced VM really does not fit, and that the excess is correct."""
    spec, conditions = invariants.spec, invariants.conditions
    length = wave_duration(spec, conditions)
    since = max(NOW, spec.start_at or NOW) + wave_notice(spec, conditions)
    longest = longest_span(spec.policy, since, ZoneInfo)
    match unplaced.rule:
        case "vms_at_once":
            assert amount(unplaced) == len(unplaced.vms) - invariants.limits["vms"] > 0
        case "hosts_at_once":
            hosts = {invariants.hosts[unplaced.scope, vm] for vm in unplaced.vms}
            assert amount(unplaced) == len(hosts) - invariants.limits["hosts"] > 0
        case "must_end_inside":
            assert parse_duration(unplaced.excess.removesuffix(" too long")) == length - longest > timedelta(0)
        case rule:
            raise AssertionError(f"{rule}: within a year these policies always leave room")
    assert unplaced.excess in unplaced.why


def amount(unplaced: UnplacedVms) -> int:
    found = re.fullmatch(r"(\d+) (?:VM|host)s? too many", unplaced.excess)
    assert found is not None, unplaced.excess
    return int(found[1])


@settings(max_examples=examples(50))
@given(spec=SPECS, fleet=FLEETS, seed=st.integers())
def test_plan_does_not_depend_on_the_order_of_scopes(spec: CampaignSpec, fleet: tuple[Scope, ...], seed: int) -> None:
    conditions = RuleContext()
    assume(PlanInvariants(spec, fleet, conditions, NOW).selected)
    shuffled = list(fleet)
    Random(seed).shuffle(shuffled)
    first, again = (planned(spec, tuple(scopes), conditions) for scopes in (fleet, shuffled))
    assert first == again
    assert msgspec.json.decode(msgspec.json.encode(first), type=Plan) == first


@settings(max_examples=examples(50))
@given(policy=POLICIES, fleet=FLEETS)
def test_without_limits_no_wave_waits_unnecessarily(policy: CampaignPolicy, fleet: tuple[Scope, ...]) -> None:
    free = msgspec.structs.replace(policy, scopes_at_once=None, hosts_at_once=None, vms_at_once=None)
    spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True), policy=free)
    quiet = tuple(msgspec.structs.replace(scope, events=()) for scope in fleet)
    conditions = RuleContext()
    made = planned(spec, quiet, conditions)
    length, notice = wave_duration(spec, conditions), wave_notice(spec, conditions)
    for scope in fleet:
        ready_at = NOW + notice
        for wave in (wave for wave in made.waves if wave.scope == scope.id):
            assert wave.not_before == next_start(free, ready_at, length, ZoneInfo)
            ready_at = wave.ends_at + max(wave_gap(spec, conditions), notice)


@settings(max_examples=examples(50))
@given(fleet=FLEETS, limit=st.integers(1, 6), what=st.sampled_from(["scopes_at_once", "hosts_at_once", "vms_at_once"]))
def test_wave_waits_only_if_there_is_no_room(fleet: tuple[Scope, ...], limit: int, what: str) -> None:
    """A wave that was ready earlier did not fit at that time: no usable room is left."""
    policy = CampaignPolicy(**{what: Limit(number=limit)})  # type: ignore[arg-type]  # the three are of this type
    spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True), policy=policy)
    quiet = tuple(msgspec.structs.replace(scope, events=()) for scope in fleet)
    invariants = PlanInvariants(spec, quiet, RuleContext(), NOW)
    made = planned(spec, quiet, RuleContext())
    ready_at = dict.fromkeys(invariants.fleet, NOW + 15 * MINUTE)
    for wave in made.waves:
        moments = {other.not_before for other in made.waves} | {other.ends_at for other in made.waves}
        for moment in sorted(moment for moment in moments if ready_at[wave.scope] <= moment < wave.not_before):
            ours = [other for other in made.waves if other.not_before <= moment < other.ends_at]
            vms = [(part.scope, vm) for part in (*ours, wave) for vm in part.vms]
            wanted = {
                "scopes_at_once": len({scope for scope, _ in vms}),
                "hosts_at_once": len({invariants.hosts[vm] for vm in vms}),
                "vms_at_once": len(vms),
            }
            assert wanted[what] > limit, f"{wave.scope} could have started at {moment}"
        ready_at[wave.scope] = wave.ends_at + 30 * MINUTE
