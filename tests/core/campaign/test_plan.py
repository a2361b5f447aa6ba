"""Whole plans of small fleets, unplaced VMs with their reasons, and remarks."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.plan import Plan, PlannedWave, UnplacedVms, peak_counts, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, CampaignSpec, Limit, Selection, Window
from forewarn.core.errors import Invalid, NoticeTooShort
from forewarn.core.event import EventType
from forewarn.core.impact import Failed
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.operations import hold
from forewarn.core.policy import EMULATOR, AnnouncePolicy, Policy, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Hold, Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_set(
    id_: str, domains: int = 2, vms_each: int = 1, hosts: Iterable[str] = ("hv-0", "hv-1"), *, enabled: bool = True
) -> Scope:
    """Return a scope with this many VMs in each update domain, and a host for each domain."""
    where = list(hosts)
    vms = [
        a_vm(f"{id_}_{domain}{number}", update_domain=domain, host=where[domain % len(where)])
        for domain in range(domains)
        for number in range(vms_each)
    ]
    return a_scope(vms, id=id_, enabled=enabled)


def a_plan(*fleet: Scope, now: datetime = NOW, conditions: RuleContext | None = None, **fields: Any) -> Plan:
    values: dict[str, Any] = {"name": "kernel", "type": EventType.REBOOT, "selection": Selection(all=True)}
    spec = CampaignSpec(**values | fields)
    what = conditions or RuleContext()
    return plan(spec, plan_scopes(fleet, spec, what, now=now), what, now=now, zones=ZoneInfo)


def times(made: Plan) -> list[str]:
    """Return a line for each wave: its start, and its scope and number."""
    return [f"{wave.not_before:%H:%M} {wave.scope}/{wave.update_domain}" for wave in made.waves]


def test_plan_has_each_wave_with_its_times_hosts_and_vms() -> None:
    made = a_plan(a_set("web", vms_each=2))
    assert made == Plan(
        waves=(
            PlannedWave(
                scope="web",
                n=1,
                update_domain=0,
                announce_at=NOW,
                not_before=NOW + 15 * MINUTE,
                ends_at=NOW + 20 * MINUTE,
                hosts=("hv-0",),
                vms=("web_00", "web_01"),
            ),
            PlannedWave(
                scope="web",
                n=2,
                update_domain=1,
                announce_at=NOW + 35 * MINUTE,
                not_before=NOW + 50 * MINUTE,
                ends_at=NOW + 55 * MINUTE,
                hosts=("hv-1",),
                vms=("web_10", "web_11"),
            ),
        ),
        unplaced=(),
        ends_at=NOW + 55 * MINUTE,
        totals=Counts(1, 2, 4),
    )


def test_next_wave_is_announced_after_the_previous_one_even_if_the_gap_is_shorter_than_the_notice() -> None:
    made = a_plan(a_set("web"), policy=CampaignPolicy(gap=timedelta(0), notice=HOUR))
    first, second = made.waves
    assert (second.announce_at, second.not_before) == (first.ends_at, first.ends_at + HOUR)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, "10:15 a/0, 10:15 b/0, 10:15 c/0, 10:50 a/1, 10:50 b/1, 10:50 c/1"),
        ({"scopes_at_once": "1"}, "10:15 a/0, 10:20 b/0, 10:25 c/0, 10:50 a/1, 10:55 b/1, 11:00 c/1"),
        ({"scopes_at_once": "67%"}, "10:15 a/0, 10:15 b/0, 10:20 c/0, 10:50 a/1, 10:50 b/1, 10:55 c/1"),
        ({"vms_at_once": "3"}, "10:15 a/0, 10:20 b/0, 10:25 c/0, 10:50 a/1, 10:55 b/1, 11:00 c/1"),
        ({"vms_at_once": "4"}, "10:15 a/0, 10:15 b/0, 10:20 c/0, 10:50 a/1, 10:50 b/1, 10:55 c/1"),
        # All three scopes are on the same hosts: waves on one host run together.
        ({"hosts_at_once": "1"}, "10:15 a/0, 10:15 b/0, 10:15 c/0, 10:50 a/1, 10:50 b/1, 10:50 c/1"),
    ],
    ids=str,
)
def test_limits_bound_the_load_at_any_time(policy: dict[str, str], expected: str) -> None:
    limits = {name: Limit.parse(limit) for name, limit in policy.items()}
    fleet = [a_set(id_, vms_each=2) for id_ in "abc"]
    made = a_plan(*fleet, policy=CampaignPolicy(**limits))  # type: ignore[arg-type]  # all of them are limits
    assert times(made) == expected.split(", ")


def test_scope_with_the_most_waves_left_goes_first() -> None:
    made = a_plan(a_set("a", 1), a_set("b", 3), a_set("c", 2), policy=CampaignPolicy(scopes_at_once=Limit(number=1)))
    assert times(made) == ["10:15 b/0", "10:20 c/0", "10:25 a/0", "10:50 b/1", "10:55 c/1", "11:25 b/2"]


def test_waves_of_each_scope_are_in_their_order() -> None:
    made = a_plan(a_set("api", domains=1), a_set("web", domains=2))
    assert {scope: [wave.n for wave in waves] for scope, waves in made.by_scope().items()} == {
        "web": [1, 2],
        "api": [1],
    }


def test_scopes_are_in_natural_order() -> None:
    fleet = [a_set(f"web-{number}", 1) for number in (10, 9, 1)]
    made = a_plan(*fleet, policy=CampaignPolicy(scopes_at_once=Limit(number=1)))
    assert [wave.scope for wave in made.waves] == ["web-1", "web-9", "web-10"]


def test_smaller_wave_uses_the_room_that_a_larger_one_leaves() -> None:
    made = a_plan(
        a_set("a", 1, 3), a_set("b", 1, 2), a_set("c", 1, 1), policy=CampaignPolicy(vms_at_once=Limit(number=4))
    )
    assert times(made) == ["10:15 a/0", "10:15 c/0", "10:20 b/0"]


def test_vms_of_unknown_host_count_as_one_separate_host() -> None:
    fleet = [a_scope([a_vm(f"{id_}_0"), a_vm(f"{id_}_1")], id=id_) for id_ in "ab"]
    made = a_plan(*fleet, policy=CampaignPolicy(hosts_at_once=Limit(number=1)))
    assert (times(made), made.totals, made.waves[0].hosts) == (["10:15 a/0", "10:20 b/0"], Counts(2, 2, 4), ())


def test_impacts_of_other_causes_count() -> None:
    """A failure in another scope, expected to take 20 minutes, leaves room for one VM."""
    broken = saved_scope(
        schedule(
            a_set("other", vms_each=3, domains=1),
            a_request("other_00", "other_01", "other_02", failure=True, duration=20 * MINUTE),
            RuleContext(),
            now=NOW,
        )
    )
    made = a_plan(
        broken,
        a_set("a", 1, 2),
        a_set("b", 1, 1),
        selection=Selection(scopes=("a", "b")),
        policy=CampaignPolicy(vms_at_once=Limit(number=4)),
    )
    assert times(made) == ["10:15 b/0", "10:20 a/0"]


def test_wave_does_not_overlap_maintenance_that_is_scheduled_in_its_scope() -> None:
    """Maintenance of another update domain is from 10:18 to 10:28: a wave that lasts until 10:20 would overlap it."""
    ask = a_request("a_10", notice=18 * MINUTE, duration=10 * MINUTE)
    made = a_plan(saved_scope(schedule(a_set("a"), ask, RuleContext(), now=NOW)))
    assert times(made) == ["10:28 a/0", "11:03 a/1"]


def test_overdue_event_is_expected_to_take_as_long_again() -> None:
    ask = a_request("a_00", failure=True, duration=10 * MINUTE)
    made = a_plan(
        saved_scope(schedule(a_set("a", 1), ask, RuleContext(), now=NOW - HOUR)), policy=CampaignPolicy(notice=None)
    )
    assert times(made) == ["10:15 a/0"]
    slow = a_request("a_00", failure=True, duration=25 * MINUTE)
    made = a_plan(saved_scope(schedule(a_set("a", 1), slow, RuleContext(), now=NOW - HOUR)))
    assert times(made) == ["10:25 a/0"]


def test_nothing_is_announced_before_start_at() -> None:
    made = a_plan(a_set("a", 1), start_at=NOW + HOUR)
    assert (made.waves[0].announce_at, made.waves[0].not_before) == (NOW + HOUR, NOW + 75 * MINUTE)


def test_speed_divides_notice_gap_and_length_but_not_the_windows() -> None:
    window = Window(start="10:30", end="12:00")
    conditions = RuleContext(policy=Policy(speed=60.0))
    made = a_plan(a_set("a"), conditions=conditions, policy=CampaignPolicy(windows=(window,)))
    assert [(f"{wave.announce_at:%T}", f"{wave.not_before:%T}", f"{wave.ends_at:%T}") for wave in made.waves] == [
        ("10:29:45", "10:30:00", "10:30:05"),
        ("10:30:20", "10:30:35", "10:30:40"),
    ]


def test_waves_wait_for_the_window_across_a_dst_change() -> None:
    """In the night in which Vienna's clocks jump, 22:00 to 04:00 is five hours, with room for two waves an hour."""
    now = datetime.fromisoformat("2030-03-30T12:00:00Z")
    window = Window(start="22:00", end="04:00", zone="Europe/Vienna")
    policy = CampaignPolicy(windows=(window,), gap=2 * HOUR, expected=30 * MINUTE)
    made = a_plan(a_set("a", 4), now=now, policy=policy)
    assert [f"{wave.not_before:%d %H:%M}" for wave in made.waves] == ["30 21:00", "30 23:30", "31 20:00", "31 22:30"]
    inside = a_plan(
        a_set("a", 4), now=now, policy=CampaignPolicy(windows=(window,), expected=5 * HOUR, must_end_inside=True)
    )
    assert [f"{wave.not_before:%d %H:%M}" for wave in inside.waves] == ["30 21:00", "31 20:00", "01 20:00", "02 20:00"]


def test_only_the_update_domain_above_a_limit_is_unplaced() -> None:
    scope = a_scope(
        [*(a_vm(f"v{n}", update_domain=1, host=f"hv-{n}") for n in range(5)), a_vm("w", update_domain=2)], id="a"
    )
    policy = CampaignPolicy(vms_at_once=Limit(number=4), hosts_at_once=Limit(percent=50))
    made = a_plan(scope, policy=policy)
    assert times(made) == ["10:15 a/2"]
    assert made.waves[0].n == 1
    assert made.unplaced == (
        UnplacedVms(
            scope="a",
            update_domain=1,
            vms=("v0", "v1", "v2", "v3", "v4"),
            rule="hosts_at_once",
            excess="2 hosts too many",
            why="update domain 1 is one wave: hosts_at_once allows 3, and it has 5 hosts, 2 hosts too many; "
            "vms_at_once allows 4, and it has 5 VMs, 1 VM too many",
        ),
    )


@pytest.mark.parametrize(
    ("policy", "rule", "by_how_much", "why"),
    [
        (
            CampaignPolicy(windows=(Window(start="22:00", end="00:00"),), must_end_inside=True, expected=3 * HOUR),
            "must_end_inside",
            "1h too long",
            "a wave is expected to take 3h, and the longest open time is 2h: 1h too long",
        ),
        (
            CampaignPolicy(blackouts=(Blackout(start=NOW - HOUR, end=NOW + timedelta(days=900)),)),
            "blackouts",
            "5m missing",
            "no window is open within 366 days: 5m missing",
        ),
        (
            CampaignPolicy(
                windows=(Window(start="22:00", end="04:00"),),
                blackouts=(Blackout(start=NOW - HOUR, end=NOW + timedelta(days=900)),),
            ),
            "blackouts",
            "5m missing",
            "no window is open within 366 days: 5m missing",
        ),
        (
            CampaignPolicy(
                blackouts=(
                    Blackout(start=NOW, end=NOW + HOUR),
                    Blackout(start=NOW + 3 * HOUR, end=NOW + timedelta(days=900)),
                ),
                expected=3 * HOUR,
            ),
            "blackouts",
            "1h too long",
            "a wave is expected to take 3h, and the longest open time is 2h: 1h too long",
        ),
    ],
    ids=["window too short", "black-out", "windows under a black-out", "too short between black-outs"],
)
def test_unplaced_vms_name_the_policy_key_and_the_excess(
    policy: CampaignPolicy, rule: str, by_how_much: str, why: str
) -> None:
    made = a_plan(a_set("a", 1), policy=policy)
    vms = ("a_00",)
    expected = UnplacedVms(scope="a", update_domain=0, vms=vms, rule=rule, excess=by_how_much, why=why)
    assert (made.waves, made.unplaced, made.ends_at) == ((), (expected,), None)


def test_nothing_is_planned_more_than_a_year_ahead() -> None:
    window = Window(days=(), start="02:00", end="02:10")
    made = a_plan(
        a_set("a", 400), policy=CampaignPolicy(windows=(window,), gap=HOUR), conditions=RuleContext(policy=EMULATOR)
    )
    assert len(made.waves) == 366
    assert len(made.unplaced) == 34
    assert {(unplaced.rule, unplaced.excess) for unplaced in made.unplaced} == {
        ("longest-campaign", "34 of 400 waves left")
    }


def test_notice_below_the_minimum_is_refused_where_it_is_enforced() -> None:
    policy = CampaignPolicy(notice=10 * MINUTE)
    with pytest.raises(
        NoticeTooShort, match=r"notice must be at least 15m for Reboot: the earliest start is 2030-01-07 10:15"
    ):
        a_plan(a_set("a"), policy=policy)
    assert times(a_plan(a_set("a", 1), policy=policy, conditions=RuleContext(policy=EMULATOR))) == ["10:10 a/0"]
    assert times(a_plan(a_set("a", 1), policy=policy, type=EventType.REDEPLOY)) == ["10:10 a/0"]


def test_notice_at_a_speed_is_as_short_as_that_of_events() -> None:
    """A campaign on a copy of the fleet: the production policy, faster."""
    shortest = timedelta(seconds=10)
    faster = RuleContext(policy=Policy(speed=600.0, shortest_notice=shortest))
    assert [wave.not_before for wave in a_plan(a_set("a", 1), conditions=faster).waves] == [NOW + shortest]
    with pytest.raises(NoticeTooShort) as refused:
        a_plan(a_set("a", 1), policy=CampaignPolicy(notice=timedelta(seconds=9)), conditions=faster)
    assert (refused.value.minimum_notice, refused.value.earliest_start_at) == ("15m", NOW + shortest)


def test_selection_that_matches_nothing_is_refused() -> None:
    with pytest.raises(Invalid, match="the selection matches no VM"):
        a_plan(a_set("a"), selection=Selection(scopes=("b",)))


def test_start_more_than_a_year_ahead_is_refused() -> None:
    with pytest.raises(Invalid, match="start_at: must be at most 366 days ahead"):
        a_plan(a_set("a"), start_at=NOW + timedelta(days=367))


def test_names_that_select_nothing_are_remarked() -> None:
    names = ("a", "b*", "x", "y", *(f"z{number}" for number in range(5)))
    made = a_plan(a_set("a"), a_set("b1"), selection=Selection(scopes=names, hosts=("hv-1", "hv-9*")))
    assert made.remarks == (
        "no VM is selected by scopes x, y, z0, z1, z2 and 2 more",
        "no VM is selected by host hv-9*",
    )


def test_exclusions_that_match_nothing_are_remarked() -> None:
    selection = Selection(
        scopes=("a", "b"),
        exclude_scopes=("b", "c", "x*"),
        exclude_hosts=("hv-1", "hv-77"),
        exclude_vms=("A_00", "a/a_0*", "b_00", "wbe-0", "b/a_00", "a*0?"),
        exclude_tags={"tier": "gold"},
    )
    fleet = a_set("a", 3, hosts=("hv-0", "hv-1", "hv-2")), a_set("b"), a_set("c")
    made = a_plan(*fleet, selection=selection)
    assert made.remarks == (
        "no VM is selected by scope b",
        "nothing is excluded by scopes c, x*",
        "nothing is excluded by host hv-77",
        "nothing is excluded by VMs wbe-0, b/a_00",
        "nothing is excluded by tag tier=gold",
    )


def test_holds_are_remarked() -> None:
    held = saved_scope(hold(a_set("a"), by="alice", reason="a sale", now=NOW))
    conditions = RuleContext(hold=Hold(by="bob", at=NOW, reason="the storm"))
    assert a_plan(held, a_set("b"), conditions=conditions).remarks == (
        "all maintenance is held by bob: the storm; waves wait for its release",
        "held, so their waves wait until the hold is released: a (by alice: a sale)",
    )


def test_failed_maintenance_that_waits_for_a_person_is_remarked() -> None:
    conditions = RuleContext(policy=EMULATOR)
    scope = saved_scope(schedule(a_set("a"), a_request("a_00", notice=timedelta(0)), conditions, now=NOW))
    event = scope.events[0].id
    scope = saved_scope(begin(scope, event, "a_00", now=NOW))
    scope = saved_scope(settle(scope, event, "a_00", Failed("it broke"), conditions, now=NOW))
    assert a_plan(scope, a_set("b")).remarks == (
        "failed maintenance waits for a person, and further waves wait for it: a",
    )


def test_scopes_that_will_not_hear_of_it_are_counted_and_remarked() -> None:
    fleet = a_set("a", vms_each=2), a_set("b", vms_each=3, enabled=False), a_set("c", 1, enabled=False)
    made = a_plan(*fleet)
    remark = "1 of 3 scopes polls for events: 7 of 11 VMs will not hear of it"
    assert made.unannounced_text == remark
    assert (made.unannounced, made.needs_consent, made.remarks) == (
        Counts(2, 2, 7),
        True,
        (f"{remark}; to start it, consent with unannounced",),
    )
    assert {wave.scope: wave.announced for wave in made.waves} == {"a": True, "b": False, "c": False}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(announce=AnnouncePolicy.ALWAYS), (Counts(), False, ())),
        (
            Policy(enforce_notice=False),
            (Counts(1, 2, 2), False, ("0 of 1 scopes poll for events: 2 of 2 VMs will not hear of it",)),
        ),
    ],
    ids=["always announced", "any notice"],
)
def test_consent_is_needed_only_where_notices_are_enforced_and_not_every_event_is_announced(
    policy: Policy, expected: tuple[Counts, bool, tuple[str, ...]]
) -> None:
    made = a_plan(a_set("a", enabled=False), conditions=RuleContext(policy=policy))
    assert (made.unannounced, made.needs_consent, made.remarks) == expected


def test_progress_is_reported_in_some_hundred_steps_up_to_the_total() -> None:
    fleet = [a_set(f"s{number}", 4, 3) for number in range(200)]
    spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True))
    told: list[tuple[int, int]] = []
    inputs = plan_scopes(fleet, spec, RuleContext(), now=NOW)
    plan(spec, inputs, RuleContext(), now=NOW, zones=ZoneInfo, progress=lambda *done: told.append(done))
    assert told == sorted(told)
    assert 50 <= len(told) <= 101
    assert told[-1] == (2400, 2400)


def test_progress_reaches_the_total_even_if_no_vm_is_placed() -> None:
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(vms_at_once=Limit(number=1)),
    )
    told: list[tuple[int, int]] = []
    inputs = plan_scopes([a_set("a", 1, 3)], spec, RuleContext(), now=NOW)
    plan(spec, inputs, RuleContext(), now=NOW, zones=ZoneInfo, progress=lambda *done: told.append(done))
    assert told == [(3, 3)]


def test_irrelevant_scopes_are_omitted() -> None:
    spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(scopes=("a",)))
    busy = saved_scope(schedule(a_set("b"), a_request("b_00", id=guid("b")), RuleContext(), now=NOW))
    found = plan_scopes([a_set("a"), busy, a_set("c")], spec, RuleContext(), now=NOW)
    assert [(scope.id, len(scope.groups), len(scope.busy)) for scope in found] == [("a", 2, 0), ("b", 0, 1)]


def test_peak_counts_what_is_in_waves_at_one_time() -> None:
    """A wave that starts when another ends does not add to it."""
    fleet = (a_set("a", vms_each=2), a_set("b", vms_each=3, hosts=["hv-0", "hv-2"]))
    together = a_plan(*fleet, policy=CampaignPolicy(gap=HOUR))
    assert peak_counts(together.waves) == Counts(scopes=2, hosts=2, vms=5)
    one_by_one = a_plan(*fleet, policy=CampaignPolicy(gap=HOUR, scopes_at_once=Limit(number=1)))
    assert peak_counts(one_by_one.waves) == Counts(scopes=1, hosts=1, vms=3)
    assert peak_counts(()) == Counts()
