"""Commands on a campaign: start, pause, resume, abort, and retry or skip a wave."""

from datetime import timedelta
from itertools import product

import msgspec
import pytest

from forewarn.core.campaign.actions import (
    AnnounceWave,
    GateClosed,
    WaveRefused,
)
from forewarn.core.campaign.commands import TRANSITIONS, abort, pause, plan_progress, resume, retry, skip, start
from forewarn.core.campaign.draft import CampaignDraft
from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.plan import Plan, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import (
    MAX_ATTEMPTS,
    SECOND,
    Campaign,
    CampaignState,
    Notification,
    ScopeProgress,
    StateChange,
    Wave,
    WaveState,
)
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection
from forewarn.core.errors import CampaignScopeNotFound, Invalid, InvalidCampaignState, NotAnnounced, PlacementFailed
from forewarn.core.event import EventType
from forewarn.core.impact import Failed
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import RuleContext
from forewarn.core.scope import EventOutcome, Scope
from tests.core.campaign.rollout_driver import (
    CONDITIONS,
    KERNEL,
    RolloutDriver,
    campaign_over,
    web,
    with_failures,
    zones,
)
from tests.core.sample_scopes import TEN, scope, vm


@pytest.mark.parametrize(("state", "move"), list(product(CampaignState, ("pause", "resume", "abort"))))
def test_commands_on_a_campaign_follow_the_table(state: CampaignState, move: str) -> None:
    record = msgspec.structs.replace(campaign_over(web()), state=state)
    do = {"pause": pause, "resume": resume, "abort": abort}[move]
    if (state, move) not in TRANSITIONS:
        with pytest.raises(InvalidCampaignState):
            do(record, by="bob", now=TEN)
        return
    decision = do(record, by="bob", now=TEN)
    assert decision.record.state is TRANSITIONS[state, move]
    assert len(decision.entries) == (TRANSITIONS[state, move] is not state)


def test_number_of_waves_in_retry_is_limited() -> None:
    many = [scope(f"s{n}", vm(f"s{n}")) for n in range(MAX_ATTEMPTS + 1)]
    record = with_failures(many, "it is too large")
    for each in many[:-1]:
        record = retry(record, each.id, each, by="bob", now=TEN).record
    with pytest.raises(InvalidCampaignState, match="campaign kernel is about to retry 300 waves"):
        retry(record, many[-1].id, many[-1], by="bob", now=TEN)
    draft = CampaignDraft(record)
    draft.settle("s0", 1, [EventOutcome.COMPLETED], now=TEN)
    record = retry(draft.finish().record, many[-1].id, many[-1], by="bob", now=TEN).record
    assert len(record.attempts) == MAX_ATTEMPTS


def with_stuck_work(*names: str) -> tuple[Campaign, list[Scope]]:
    """Return a campaign over scopes of which the work on every first wave has failed."""
    hand = RolloutDriver(*(scope(name, vm(name)) for name in names), halt_after=None)
    for action in hand.decide():
        assert isinstance(action, AnnounceWave)
        hand.announce(action)
    due = TEN + timedelta(minutes=15)
    while actions := hand.decide(due):
        for action in actions:
            hand.clear(action)
    for name in names:
        (event,) = hand.scopes[name].events
        begun = begin(hand.scopes[name], event.id, name, now=due).scope or hand.scopes[name]
        settled = settle(begun, event.id, name, Failed("no power"), CONDITIONS, now=due).scope
        hand.scopes[name] = settled or begun
    hand.decide()
    return hand.record, list(hand.scopes.values())


def test_retry_of_stuck_work_is_for_the_failures_that_the_scope_has_then() -> None:
    record, (web_scope,) = with_stuck_work("web")
    decision = retry(record, "web", web_scope, by="bob", now=TEN)
    assert decision.record.scopes[0].wave(1).state is WaveState.RETRYING
    assert (decision.record.retries, decision.record.attempts) == ({"1/web": web_scope.entries}, {})


def test_number_of_waves_with_stuck_work_in_retry_is_limited() -> None:
    record, (first, second) = with_stuck_work("a", "b")
    others = {f"1/s{n}": 1 for n in range(MAX_ATTEMPTS - 1)}
    record = retry(msgspec.structs.replace(record, retries=others), "a", first, by="bob", now=TEN).record
    assert len(record.retries) == MAX_ATTEMPTS
    with pytest.raises(InvalidCampaignState, match="campaign kernel is about to retry 300 waves"):
        retry(record, "b", second, by="bob", now=TEN)


def test_while_aborting_only_failed_waves_can_be_skipped_and_only_stuck_ones_retried() -> None:
    hand = RolloutDriver(web())
    hand.take(abort(hand.record, by="bob", now=TEN))
    with pytest.raises(
        InvalidCampaignState, match="wave 1 of scope web is not going to start because its campaign is aborted"
    ):
        skip(hand.record, "web", by="bob", why="x", now=TEN)
    hand.find(WaveRefused("web", 1, "it is too large"))
    with pytest.raises(
        InvalidCampaignState, match="wave 1 of scope web is over, and its campaign is aborted: it cannot be announced"
    ):
        retry(hand.record, "web", hand.scopes["web"], by="bob", now=TEN)
    hand.take(skip(hand.record, "web", by="bob", why="x", now=TEN))
    assert hand.wave("web", 1).state is WaveState.SKIPPED


def a_spec(**fields: object) -> CampaignSpec:
    values: dict[str, object] = {"name": "kernel", "type": EventType.REBOOT, "selection": Selection(all=True)}
    return CampaignSpec(**values | fields)  # type: ignore[arg-type]  # as each test says


def planned(scopes: list[Scope], spec: CampaignSpec) -> Plan:
    return plan(spec, plan_scopes(scopes, spec, CONDITIONS, now=TEN), CONDITIONS, now=TEN, zones=zones)


def test_started_campaign_has_its_plan_and_its_first_entry() -> None:
    spec, late = a_spec(), TEN + timedelta(microseconds=1)
    made = planned([web()], spec)
    progress = plan_progress(made.waves, started_at=TEN, seen=4)
    decision = start(spec, made, [progress], id_=KERNEL, by="ann", why="patch", now=late)
    assert decision.record == Campaign(
        id=KERNEL,
        spec=spec,
        state=CampaignState.RUNNING,
        by="ann",
        started_at=TEN,
        state_change=StateChange(by="ann", at=late, why="patch"),
        scopes=(progress,),
        selected=Counts(1, 2, 2),
        why="patch",
        planned_end=made.ends_at,
        entries=1,
    )
    facts = {"name": "kernel", "type": "Reboot", "scopes": "1", "waves": "2", "vms": "2"}
    assert decision.entries == (
        Entry(n=1, at=late, kind=EntryKind.CAMPAIGN_STARTED, by="ann", why="patch", facts=facts),
    )


def test_plan_that_vms_will_not_hear_of_is_started_only_with_consent() -> None:
    spec, production = a_spec(), RuleContext()
    silent = [scope(f"s{n:02}", vm(f"s{n:02}-0"), vm(f"s{n:02}-1")) for n in range(30)]
    made = plan(spec, plan_scopes(silent, spec, production, now=TEN), production, now=TEN, zones=zones)
    progress = [plan_progress([wave], started_at=TEN, seen=0) for wave in made.waves]
    with pytest.raises(
        NotAnnounced, match="0 of 30 scopes poll for events: 60 of 60 VMs will not hear of it"
    ) as refused:
        start(spec, made, progress, id_=KERNEL, by="ann", now=TEN)
    assert refused.value.details == {
        "scopes": tuple(f"s{n:02}" for n in range(20)),
        "scope_count": 30,
        "vm_count": 60,
    }
    started = start(spec, made, progress, id_=KERNEL, by="ann", now=TEN, unannounced=True)
    facts = started.entries[0].facts
    assert (started.record.unannounced, facts["unannounced_scopes"], facts["unannounced_vms"]) == (
        made.unannounced,
        "30",
        "60",
    )


def test_start_is_notified_where_that_is_asked_for() -> None:
    spec = a_spec()
    made = planned([web()], spec)
    progress = [plan_progress(made.waves, started_at=TEN, seen=0)]
    told = start(spec, made, progress, id_=KERNEL, by="ann", why="patch", now=TEN, notify=True).record.notifications
    assert told == (Notification(n=1, what="started", at=TEN, why="patch"),)


def test_plan_with_vms_that_have_no_place_is_not_started() -> None:
    crowded = scope("web", *(vm(f"web-{n}") for n in range(3)))
    spec = a_spec(policy=CampaignPolicy(vms_at_once=Limit(2)))
    with pytest.raises(PlacementFailed) as refused:
        start(spec, planned([crowded], spec), [], id_=KERNEL, by="ann", now=TEN)
    error = refused.value
    assert (error.scope, error.vms, error.policy_key, error.others) == ("web", 3, "vms_at_once", 0)


def test_plan_without_waves_is_not_started() -> None:
    empty = Plan(waves=(), unplaced=(), ends_at=None, totals=Counts())
    with pytest.raises(Invalid):
        start(a_spec(), empty, [], id_=KERNEL, by="ann", now=TEN)


def test_progress_counts_waves_from_the_first_and_the_first_from_the_start() -> None:
    made = planned([web()], a_spec())
    first, second = (wave.not_before for wave in made.waves)
    assert plan_progress(made.waves, started_at=TEN, seen=7) == ScopeProgress(
        "web", (first - TEN) // SECOND, (Wave(0, 0, vms=1), Wave(1, (second - first) // SECOND, vms=1)), 7
    )


def test_paused_campaign_has_who_paused_it_and_why() -> None:
    decision = pause(campaign_over(web()), by="bob", why="audit", now=TEN)
    assert decision.record.state_change == StateChange(by="bob", at=TEN, why="audit")
    assert [(entry.kind, entry.by, entry.why) for entry in decision.entries] == [
        (EntryKind.CAMPAIGN_PAUSED, "bob", "audit")
    ]
    with pytest.raises(Invalid):
        pause(campaign_over(web()), by="bob", why="x" * 513, now=TEN)


def test_resumed_campaign_counts_failures_from_zero() -> None:
    hand = RolloutDriver(web(), halt_after=1)
    hand.find(GateClosed("web", 1, "sick"))
    hand.find(WaveRefused("web", 1, "no power"))
    assert (hand.record.state, hand.record.failures, hand.record.gate is None) == (CampaignState.HALTED, 1, False)
    resumed = resume(hand.record, by="bob", now=TEN).record
    assert (resumed.state, resumed.failures, resumed.gate) == (CampaignState.RUNNING, 0, None)
    assert list(resumed.wave_failures) == ["web"], "what has failed still waits for a person"


def test_retried_wave_is_announced_again_under_another_id() -> None:
    hand = RolloutDriver(web(), halt_after=None)
    hand.find(WaveRefused("web", 1, "no power"))
    before = hand.record.request("web", 1)
    decision = retry(hand.record, "web", web(), by="bob", why="power is back", now=TEN)
    record = decision.record
    assert (record.scopes[0].wave(1).state, record.attempts, record.wave_failures) == (
        WaveState.PLANNED,
        {"1/web": 2},
        {},
    )
    assert record.request("web", 1) != before
    assert [(entry.kind, entry.facts) for entry in decision.entries] == [
        (EntryKind.WAVE_RETRIED, {"scope": "web", "wave": "1", "update_domain": "0"})
    ]


@pytest.mark.parametrize("state", [WaveState.PLANNED, WaveState.ANNOUNCED, WaveState.CLEARED])
def test_wave_that_has_not_failed_is_not_retried(state: WaveState) -> None:
    hand = RolloutDriver(web())
    hand.put_wave("web", 1, state, TEN)
    with pytest.raises(InvalidCampaignState):
        retry(hand.record, "web", web(), by="bob", now=TEN)


def test_wave_that_is_being_retried_is_not_retried_twice() -> None:
    hand = RolloutDriver(web())
    hand.put_wave("web", 1, WaveState.RETRYING, TEN)
    decision = retry(hand.record, "web", web(), by="bob", now=TEN)
    assert (decision.record, decision.entries) == (hand.record, ())


@pytest.mark.parametrize("state", [WaveState.CLEARED, WaveState.RETRYING])
def test_wave_that_is_under_way_is_not_skipped(state: WaveState) -> None:
    hand = RolloutDriver(web())
    hand.put_wave("web", 1, state, TEN)
    with pytest.raises(InvalidCampaignState):
        skip(hand.record, "web", by="bob", why="x", now=TEN)


def test_skipped_wave_has_its_reason_in_the_journal() -> None:
    decision = skip(campaign_over(web()), "web", by="bob", why="not needed", now=TEN)
    assert decision.record.scopes[0].current == 2
    assert [(entry.kind, entry.by, entry.why) for entry in decision.entries] == [
        (EntryKind.WAVE_SKIPPED, "bob", "not needed")
    ]
    with pytest.raises(Invalid):
        skip(campaign_over(web()), "web", by="bob", why=" ", now=TEN)


def test_scope_of_another_campaign_is_refused() -> None:
    with pytest.raises(CampaignScopeNotFound) as refused:
        skip(campaign_over(web()), "db", by="bob", why="x", now=TEN)
    assert (refused.value.scope, refused.value.campaign) == ("db", "kernel")


def test_scope_without_a_further_wave_has_nothing_to_skip() -> None:
    hand = RolloutDriver(scope("db", vm("db-0")))
    hand.put_wave("db", 1, WaveState.DONE, TEN)
    with pytest.raises(InvalidCampaignState):
        skip(hand.record, "db", by="bob", why="x", now=TEN)


@pytest.mark.parametrize("state", [CampaignState.COMPLETED, CampaignState.ABORTED])
def test_campaign_that_is_over_has_nothing_to_retry(state: CampaignState) -> None:
    record = msgspec.structs.replace(campaign_over(web()), state=state)
    with pytest.raises(InvalidCampaignState):
        retry(record, "web", web(), by="bob", now=TEN)
