"""How a campaign goes on, as rules: what is seen of its scopes in, journal entries and actions out."""

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import product

import msgspec
import pytest

from forewarn.core import operations
from forewarn.core.approval import approve
from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    Finding,
    GateClosed,
    GateOpened,
    ReadOutcome,
    ScopeClosed,
    WaveAnnounced,
    WaveRefused,
    WithdrawEvent,
)
from forewarn.core.campaign.calendar import calendar_of
from forewarn.core.campaign.commands import TRANSITIONS, abort, pause, plan_progress, resume, retry, skip, start
from forewarn.core.campaign.draft import CampaignBlockers, CampaignDecision, CampaignDraft
from forewarn.core.campaign.explain import MAX_NAMES_SHOWN, WaitReasons
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.limits import Counts, Load
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.plan import plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import (
    MAX_ATTEMPTS,
    MAX_WAVE_FAILURES,
    Campaign,
    CampaignEncoder,
    CampaignState,
    ScopeProgress,
    Wave,
    WaveState,
    check_size,
    decode,
    encode,
    failed_waves,
)
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection
from forewarn.core.errors import Invalid, InvalidCampaignState
from forewarn.core.event import Event, EventType
from forewarn.core.impact import ImpactState
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import EventOutcome, Scope
from tests.core.sample_scopes import TEN, scope, vm

KERNEL = "0F0E0D0C-0B0A-4908-8706-050403020100"
CONDITIONS = RuleContext(policy=EMULATOR)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def zones(_: str) -> tzinfo:
    """Give the only zone that is needed."""
    return UTC


def web(name: str = "web") -> Scope:
    """Make a scope of two update domains with a VM each."""
    return scope(name, *(vm(f"{name}-{n}", domain=n, host=f"{name}-hv-{n}") for n in range(2)))


def campaign_over(*scopes: Scope, **policy: object) -> Campaign:
    """Return a campaign that was just started."""
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(**policy),  # type: ignore[arg-type]  # as each test says
    )
    planned = plan(spec, plan_scopes(scopes, spec, CONDITIONS, now=TEN), CONDITIONS, now=TEN, zones=zones)
    progress = [
        plan_progress([wave for wave in planned.waves if wave.scope == each.id], started_at=TEN, seen=0)
        for each in scopes
    ]
    return start(spec, planned, progress, id_=KERNEL, by="alice", now=TEN).record


class RolloutDriver:
    """Carries a campaign on by hand, action by action, on scopes in memory."""

    def __init__(self, *scopes: Scope, record: Campaign | None = None, **policy: object) -> None:
        self.scopes: dict[str, Scope] = {each.id: each for each in scopes}
        self.load = FleetLoad()
        self.record = record or campaign_over(*scopes, **policy)
        self.index = CampaignIndex(self.record, CONDITIONS, zones)
        self.entries: list[Entry] = []
        self.decision = CampaignDecision(self.record)
        self.now = TEN

    def decide(self, now: datetime | None = None) -> list[Action]:
        """See everything, decide, and return what is to be done."""
        self.now = now or self.now
        for id_ in self.index.positions:
            self.load.update(id_, self.scopes.get(id_))
            observe(self.index, id_, self.scopes.get(id_))
        self.take(decide(self.record, self.index, self.load, now=self.now))
        return list(self.decision.actions)

    def take(self, decision: CampaignDecision) -> None:
        """Go on from a decision."""
        self.decision, self.record = decision, decision.record
        self.entries += decision.entries
        self.index.rebase(self.record)

    def report(self, action: Action, finding: Finding | None = None) -> None:
        """Give an action back as over."""
        self.take(apply_result(self.record, self.index, ActionResult(action, finding), now=self.now))

    def find(self, finding: Finding) -> None:
        """Have something found out that nobody was asked for."""
        self.report(CheckGate(finding.scope, 1), finding)

    def put_wave(self, scope: str, n: int, state: WaveState, at: datetime) -> None:
        """Bring a wave into another state."""
        draft = CampaignDraft(self.record)
        draft.put_wave(scope, n, state, at)
        self.take(draft.finish())

    def wave(self, scope: str, n: int) -> Wave:
        """Return a wave as the record has it."""
        return self.index.progress(scope).wave(n)

    def announce_next(self) -> AnnounceWave:
        """Decide, and make the events of the one wave that is to be announced."""
        (action,) = self.decide()
        assert isinstance(action, AnnounceWave)
        self.announce(action)
        return action

    def announce(self, action: AnnounceWave) -> None:
        """Make the events of a wave."""
        value = self.scopes[action.scope]
        domain = self.wave(action.scope, action.n).update_domain
        names = tuple(each.name for each in value.roster if each.update_domain == domain)
        ask = ScheduleRequest(
            id=self.record.request(action.scope, action.n),
            type=EventType.REBOOT,
            vms=names,
            by="campaign:kernel",
            not_before=action.start,
            campaign=KERNEL,
            wave=action.n,
        )
        change = schedule(value, ask, CONDITIONS, now=self.now)
        assert change.scope is not None
        self.scopes[action.scope] = change.scope
        self.report(action, WaveAnnounced(action.scope, action.n, len(names), action.start, seen=0))

    def clear(self, action: Action) -> None:
        """Let events start."""
        assert isinstance(action, ClearWave)
        change = operations.clear(self.scopes[action.scope], action.events, CONDITIONS, now=self.now)
        assert change.scope is not None
        self.scopes[action.scope] = change.scope
        self.report(action)


def test_waves_are_announced_and_cleared_when_their_notice_is_over() -> None:
    hand = RolloutDriver(web())
    load = Load("web", ("web-hv-0",), 1)
    announce = AnnounceWave("web", 1, TEN + 15 * MINUTE, load)
    assert hand.decide() == [announce]
    assert hand.decide() == [], "what was given out is not given out again"
    hand.announce(announce)
    assert hand.decide() == []
    assert hand.decision.wake_at == TEN + 15 * MINUTE
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    (event,) = hand.scopes["web"].events
    assert clear == ClearWave("web", 1, (event.id,), (load,))
    assert [entry.kind for entry in hand.entries] == [EntryKind.WAVE_ANNOUNCED, EntryKind.WAVE_CLEARED]
    assert ([entry.n for entry in hand.entries], hand.record.entries) == ([2, 3], 3)


def test_what_was_cleared_and_has_not_started_is_cleared_again_after_a_crash() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    again = RolloutDriver(*hand.scopes.values(), record=hand.record)
    assert again.decide(hand.now) == [clear]
    assert again.entries == [], "the journal says it once"


def test_approved_wave_is_cleared_early() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    approved = approve(
        hand.scopes["web"], "web-0", [hand.scopes["web"].events[0].id], CONDITIONS, now=TEN + MINUTE
    ).scope
    assert approved is not None
    hand.scopes["web"] = approved
    (clear,) = hand.decide(TEN + MINUTE)
    hand.clear(clear)
    assert hand.scopes["web"].events[0].started_at == TEN + MINUTE


def test_only_so_much_is_announced_as_there_will_be_room_for() -> None:
    hand = RolloutDriver(web("a"), web("b"), web("c"), scopes_at_once=Limit(1), expected=5 * MINUTE)
    hand.announce_next()
    assert hand.decide() == []
    assert (hand.decision.wake_at, hand.decision.blockers.has_limit) == (TEN + 5 * MINUTE, True)
    (second,) = hand.decide(TEN + 5 * MINUTE)
    assert second == AnnounceWave("b", 1, TEN + 20 * MINUTE, Load("b", ("b-hv-0",), 1))


def test_late_wave_keeps_others_from_being_announced() -> None:
    hand = RolloutDriver(web("a"), web("b"), scopes_at_once=Limit(1), expected=5 * MINUTE)
    hand.announce_next()
    held = operations.hold(hand.scopes["a"], by="bob", reason="audit", now=TEN).scope
    assert held is not None
    hand.scopes["a"] = held
    assert hand.decide(TEN + 16 * MINUTE) == []


def test_wave_of_which_nobody_knows_anything_is_looked_for_in_the_journal() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    hand.scopes["web"] = msgspec.structs.replace(hand.scopes["web"], events=())
    assert hand.decide() == [ReadOutcome("web", 1)]


def test_abort_withdraws_every_event_of_the_campaign_that_is_scheduled() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    (event,) = hand.scopes["web"].events
    hand.take(abort(hand.record, by="bob", why="no", now=TEN))
    assert hand.index.stale == {"web"}, "every scope is observed again"
    withdraw = WithdrawEvent("web", event.id, "bob", "no")
    assert hand.decide() == [withdraw]
    withdrawn = operations.cancel(hand.scopes["web"], event.id, CONDITIONS, by="bob", now=TEN).scope
    assert withdrawn is not None
    hand.scopes["web"] = withdrawn
    hand.decide()
    assert hand.record.state is CampaignState.ABORTING, "until what was asked for is over"
    hand.report(withdraw)
    hand.decide()
    assert (hand.record.state, hand.wave("web", 1).state) == (CampaignState.ABORTED, WaveState.PLANNED)


def test_scope_is_closed_after_its_last_wave_and_gets_further_waves_for_what_is_left() -> None:
    hand = RolloutDriver(scope("db", vm("db-0")))
    hand.put_wave("db", 1, WaveState.DONE, TEN)
    assert hand.decide() == [CloseScope("db")]
    hand.report(CloseScope("db"), ScopeClosed("db", ((3, 2),)))
    assert [(wave.update_domain, wave.vms) for wave in hand.index.progress("db").waves] == [(0, 1), (3, 2)]
    assert not hand.index.progress("db").closed


@pytest.mark.parametrize(("state", "move"), list(product(CampaignState, ("pause", "resume", "abort"))))
def test_what_people_can_do_with_a_campaign_is_in_the_table(state: CampaignState, move: str) -> None:
    record = msgspec.structs.replace(campaign_over(web()), state=state)
    do = {"pause": pause, "resume": resume, "abort": abort}[move]
    if (state, move) not in TRANSITIONS:
        with pytest.raises(InvalidCampaignState):
            do(record, by="bob", now=TEN)
        return
    decision = do(record, by="bob", now=TEN)
    assert decision.record.state is TRANSITIONS[state, move]
    assert len(decision.entries) == (TRANSITIONS[state, move] is not state)


def explain(campaign: Campaign) -> tuple[str, ...]:
    calendar = calendar_of(campaign, CONDITIONS, zones, since=TEN)
    waits = WaitReasons(campaign, calendar, CONDITIONS, CampaignBlockers(), now=TEN)
    for progress in campaign.scopes:
        waits.add(progress)
    return waits.messages


def with_failures(scopes: list[Scope], why: str) -> Campaign:
    """Return a campaign over scopes of which every wave has failed."""
    draft = CampaignDraft(campaign_over(*scopes, halt_after=None))
    for each in scopes:
        draft.fail(each.id, 1, why, now=TEN)
    return draft.finish().record


def test_reasons_are_kept_of_the_newest_failures_only_and_all_are_listed() -> None:
    many = [scope(f"s{n}", vm(f"s{n}")) for n in range(MAX_WAVE_FAILURES + 5)]
    campaign = with_failures(many, "no power")
    assert list(campaign.wave_failures) == [f"s{n}" for n in range(5, MAX_WAVE_FAILURES + 5)]
    failed = {each.scope: each for each in campaign.scopes if each.current_state is WaveState.FAILED}
    assert [(progress.scope, trouble.why) for progress, trouble in failed_waves(campaign, failed)] == [
        *((f"s{n}", "the campaign's journal says why") for n in range(5)),
        *((f"s{n}", "no power") for n in range(5, MAX_WAVE_FAILURES + 5)),
    ]
    said = explain(campaign)
    assert said[MAX_NAMES_SHOWN - 1] == "wave 1 of s104 has failed: no power; retry it or skip it"
    assert said[MAX_NAMES_SHOWN] == "95 more waves failed before; retry or skip what has failed"


def test_only_so_many_waves_are_announced_again_at_a_time() -> None:
    many = [scope(f"s{n}", vm(f"s{n}")) for n in range(MAX_ATTEMPTS + 1)]
    record = with_failures(many, "it is too large")
    for each in many[:-1]:
        record = retry(record, each.id, each, by="bob", now=TEN).record
    with pytest.raises(InvalidCampaignState, match="campaign kernel is about to do 300 waves again"):
        retry(record, many[-1].id, many[-1], by="bob", now=TEN)
    draft = CampaignDraft(record)
    draft.settle("s0", 1, [EventOutcome.COMPLETED], now=TEN)
    record = retry(draft.finish().record, many[-1].id, many[-1], by="bob", now=TEN).record
    assert len(record.attempts) == MAX_ATTEMPTS


def test_work_of_which_nobody_knows_is_told_as_unknown_and_every_vm_is_named() -> None:
    hand = RolloutDriver(scope("web", *(vm(f"web-{n}", host="hv-0") for n in range(3))))
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)

    def turn(*states: tuple[ImpactState, str]) -> None:
        (event,) = hand.scopes["web"].events
        impacts = tuple(
            msgspec.structs.replace(impact, state=state, why=why)
            for impact, (state, why) in zip(event.impacts, states, strict=True)
        )
        hand.scopes["web"] = msgspec.structs.replace(
            hand.scopes["web"], events=(msgspec.structs.replace(event, impacts=impacts),)
        )
        hand.decide()

    begun = (ImpactState.BEGUN, "")
    turn((ImpactState.FAILED, "no power"), begun, (ImpactState.FAILED, "no power"))
    hand.entries.clear()
    assert explain(hand.record)[1] == ("wave 1 of web has failed: web-0, web-2: no power; retry it or skip it")
    turn((ImpactState.FAILED, "no power"), (ImpactState.UNKNOWN, "the probe ended with 1"), (ImpactState.FAILED, ""))
    assert explain(hand.record)[1] == (
        "wave 1 of web is unknown: web-0: no power; nobody knows whether the work on web-1 was done: "
        "the probe ended with 1; web-2: no reason was given; a retry does it again: retry it or skip it"
    )
    assert (hand.entries, hand.record.failures) == ([], 1), "it has failed once"
    assert decode(encode(hand.record)) == hand.record


def test_record_is_read_as_it_was_written() -> None:
    hand = RolloutDriver(web(), scopes_at_once=Limit(percent=10.0))
    hand.find(WaveRefused("web", 1, "no power"))
    hand.find(GateClosed("web", 2, "sick"))
    assert (hand.record.gate is not None, hand.wave("web", 1).state) == (True, WaveState.FAILED)
    assert decode(encode(hand.record)) == hand.record


def test_record_is_encoded_step_by_step_as_at_once() -> None:
    hand, encoder = RolloutDriver(web("a"), web("b")), CampaignEncoder()
    assert encoder(hand.record) == encode(hand.record)
    for finding in (WaveRefused("a", 1, "no power"), WaveRefused("b", 1, "no power")):
        hand.find(finding)
        assert encoder(hand.record) == encode(hand.record)
    hand.take(skip(hand.record, "b", by="bob", why="x", now=TEN))
    over = msgspec.structs.replace(hand.record, state=CampaignState.ABORTED)
    assert [encoder(record) for record in (hand.record, over, over)] == [
        encode(hand.record),
        encode(over),
        encode(over),
    ]


def test_times_of_waves_are_rounded_up_so_that_no_gap_is_too_short() -> None:
    campaign = campaign_over(web())
    progress = campaign.scopes[0]
    moment = TEN + timedelta(minutes=16, microseconds=1)
    assert campaign.moment(progress, campaign.seconds(progress, moment)) == TEN + timedelta(minutes=16, seconds=1)
    assert campaign.moment(progress, campaign.seconds(progress, TEN)) == TEN


def test_same_wave_asks_the_same_question_and_another_attempt_another() -> None:
    campaign = campaign_over(web())
    again = msgspec.structs.replace(campaign, attempts={"1/web": 2})
    assert campaign.request("web", 1) == "1D8241EA-5D5C-582F-952A-A2CEB811D04D"
    assert len({campaign.request("web", 1), campaign.request("web", 2), again.request("web", 1)}) == 3


def test_campaign_over_five_thousand_scopes_has_room_in_its_record_and_a_larger_one_is_refused() -> None:
    def over(number: int) -> Campaign:
        waves = tuple(Wave(domain, domain * 2_100, vms=4) for domain in range(5))
        scopes = tuple(ScopeProgress(f"web-{n:05d}", 900 + n * 60, waves) for n in range(number))
        return msgspec.structs.replace(campaign_over(web()), scopes=scopes)

    check_size(over(5_000))
    with pytest.raises(Invalid, match=r"has 40000 waves in 8000 scopes and could need \d+ KiB of 768"):
        check_size(over(8_000))
    ended = tuple(
        ScopeProgress(
            each.scope, each.base, tuple(w.with_state(WaveState.DONE, w.planned + 1_000) for w in each.waves), 99, True
        )
        for each in over(5_000).scopes
    )
    assert len(encode(msgspec.structs.replace(over(1), scopes=ended))) < MAX_RECORD_BYTES


def test_what_is_about_to_start_counts_until_the_scope_shows_it() -> None:
    impacted, extra = FleetLoad(), Load("b", ("hv-9",), 1)
    hand = RolloutDriver(web())
    hand.announce_next()
    (event,) = hand.scopes["web"].events
    impacted.reserve(event.id, Load("web", ("web-hv-0",), 1))
    assert impacted.plus(extra) == Counts(2, 2, 2)
    hand.now = TEN + 15 * MINUTE
    hand.clear(ClearWave("web", 1, (event.id,), (Load("web", ("web-hv-0",), 1),)))
    assert impacted.update("web", hand.scopes["web"])
    impacted.release([event.id])
    assert impacted.plus(extra) == Counts(2, 2, 2)
    assert impacted.update("web", None)
    assert not impacted.update("web", None)
    assert impacted.plus(extra) == Counts(1, 1, 1)


def test_event_that_was_saved_before_there_were_campaigns_is_read() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    saved = msgspec.to_builtins(hand.scopes["web"].events[0])
    assert saved.pop("campaign") == KERNEL
    assert "cleared" not in saved
    old = msgspec.convert(saved, Event)
    assert (old.campaign, old.cleared) == ("", False)


def test_vm_whose_work_is_done_is_in_impact_no_more_though_its_event_goes_on() -> None:
    hand = RolloutDriver(scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-0")))
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)
    (event,) = hand.scopes["web"].events
    first, second = event.impacts
    done = msgspec.structs.replace(first, state=ImpactState.DONE)
    half = msgspec.structs.replace(event, impacts=(done, second))
    impacted, nothing = FleetLoad(), Load("web", ("hv-0",), 0)
    impacted.update("web", hand.scopes["web"])
    assert impacted.plus(nothing) == Counts(1, 1, 2)
    impacted.update("web", msgspec.structs.replace(hand.scopes["web"], events=(half,)))
    assert impacted.plus(nothing) == Counts(1, 1, 1)


def test_gate_that_was_open_before_the_last_wave_ended_is_asked_again() -> None:
    hand = RolloutDriver(web(), gate="health", gap=timedelta(0))
    end = TEN + 16 * MINUTE
    hand.put_wave("web", 1, WaveState.DONE, end)
    hand.now = end
    hand.announce_next()
    approved = approve(hand.scopes["web"], "web-1", [hand.scopes["web"].events[0].id], CONDITIONS, now=end).scope
    assert approved is not None
    hand.scopes["web"] = approved
    hand.find(GateOpened("web", 2, asked_at=end - 10 * SECOND))
    assert hand.decide() == [CheckGate("web", 2)]
    hand.report(CheckGate("web", 2), GateOpened("web", 2, asked_at=end))
    assert [type(action) for action in hand.decide()] == [ClearWave]


def test_while_aborting_only_what_has_failed_can_be_skipped_and_only_what_is_stuck_retried() -> None:
    hand = RolloutDriver(web())
    hand.take(abort(hand.record, by="bob", now=TEN))
    with pytest.raises(
        InvalidCampaignState, match="wave 1 of scope web is not going to begin, as its campaign is aborted"
    ):
        skip(hand.record, "web", by="bob", why="x", now=TEN)
    hand.find(WaveRefused("web", 1, "it is too large"))
    with pytest.raises(
        InvalidCampaignState, match="wave 1 of scope web is over, and its campaign is aborted: it cannot be announced"
    ):
        retry(hand.record, "web", hand.scopes["web"], by="bob", now=TEN)
    hand.take(skip(hand.record, "web", by="bob", why="x", now=TEN))
    assert hand.wave("web", 1).state is WaveState.SKIPPED
