"""The rollout of a campaign as rules: observed scopes in, journal entries and actions out."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from forewarn.core import operations
from forewarn.core.approval import approve
from forewarn.core.campaign.actions import (
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    GateClosed,
    GateOpened,
    ReadOutcome,
    ScopeClosed,
    WaveAnnounced,
    WaveEnded,
    WithdrawEvent,
)
from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.commands import abort
from forewarn.core.campaign.draft import CampaignBlockers
from forewarn.core.campaign.explain import MAX_NAMES_SHOWN, WaitReasons
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.record import (
    MAX_WAVE_FAILURES,
    Campaign,
    CampaignState,
    WaveState,
    decode,
    encode,
    failed_waves,
)
from forewarn.core.campaign.spec import Limit
from forewarn.core.event import Event
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
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

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


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


def test_wave_that_no_document_shows_is_not_journalled_as_announced() -> None:
    hand = RolloutDriver(web())
    (action,) = hand.decide()
    hand.report(action, WaveAnnounced("web", 1, 1, TEN + timedelta(minutes=15), seen=0, announced=False))
    assert hand.wave("web", 1).state is WaveState.ANNOUNCED
    assert [(entry.kind, entry.facts["vms"]) for entry in hand.entries] == [(EntryKind.WAVE_UNANNOUNCED, "1")]


def test_cleared_wave_that_has_not_started_is_cleared_again_after_a_crash() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    again = RolloutDriver(*hand.scopes.values(), record=hand.record)
    assert again.decide(hand.now) == [clear]
    assert again.entries == [], "the journal has only one entry"


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


def test_waves_are_announced_only_as_limits_allow() -> None:
    hand = RolloutDriver(web("a"), web("b"), web("c"), scopes_at_once=Limit(1), expected=5 * MINUTE)
    hand.announce_next()
    assert hand.decide() == []
    assert (hand.decision.wake_at, hand.decision.blockers.has_limit) == (TEN + 5 * MINUTE, True)
    (second,) = hand.decide(TEN + 5 * MINUTE)
    assert second == AnnounceWave("b", 1, TEN + 20 * MINUTE, Load("b", ("b-hv-0",), 1))


def test_late_wave_blocks_further_announcements() -> None:
    hand = RolloutDriver(web("a"), web("b"), scopes_at_once=Limit(1), expected=5 * MINUTE)
    hand.announce_next()
    held = operations.hold(hand.scopes["a"], by="bob", reason="audit", now=TEN).scope
    assert held is not None
    hand.scopes["a"] = held
    assert hand.decide(TEN + 16 * MINUTE) == []


def test_wave_does_not_move_up_while_another_one_is_expected_to_end_within_the_second() -> None:
    scopes = web("a"), web("b"), scope("c", vm("c-0"))
    record = campaign_over(*scopes, scopes_at_once=Limit(2), expected=5 * MINUTE)
    later = msgspec.structs.replace(record.scopes[2], base=3600)
    hand = RolloutDriver(*scopes, record=msgspec.structs.replace(record, scopes=(*record.scopes[:2], later)))
    for announce in hand.decide():
        assert isinstance(announce, AnnounceWave)
        hand.announce(announce)
    for clear in hand.decide(TEN + 15 * MINUTE + timedelta(milliseconds=300)):
        hand.clear(clear)
    now = TEN + 20 * MINUTE + timedelta(milliseconds=400)
    hand.scopes["a"] = msgspec.structs.replace(hand.scopes["a"], events=())
    hand.find(WaveEnded("a", 1, (EventOutcome.COMPLETED,)))
    assert [action.scope for action in hand.decide(now)] == [], "b's next wave is before it in the plan"
    assert [action.scope for action in hand.decide(now + timedelta(seconds=2))] == ["c"]


def test_outcome_of_a_forgotten_wave_is_read_from_the_journal() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    hand.scopes["web"] = msgspec.structs.replace(hand.scopes["web"], events=())
    assert hand.decide() == [ReadOutcome("web", 1)]


def test_abort_withdraws_every_scheduled_event_of_the_campaign() -> None:
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
    assert hand.record.state is CampaignState.ABORTING, "until all actions are finished"
    hand.report(withdraw)
    hand.decide()
    assert (hand.record.state, hand.wave("web", 1).state) == (CampaignState.ABORTED, WaveState.PLANNED)


def test_scope_is_closed_after_its_last_wave_and_gets_further_waves_for_remaining_vms() -> None:
    hand = RolloutDriver(scope("db", vm("db-0")))
    hand.put_wave("db", 1, WaveState.DONE, TEN)
    assert hand.decide() == [CloseScope("db")]
    hand.report(CloseScope("db"), ScopeClosed("db", ((3, 2),)))
    assert [(wave.update_domain, wave.vms) for wave in hand.index.progress("db").waves] == [(0, 1), (3, 2)]
    assert not hand.index.progress("db").closed


def explain(campaign: Campaign) -> tuple[str, ...]:
    calendar = Calendar(campaign.spec, CONDITIONS, zones, since=TEN)
    waits = WaitReasons(campaign, calendar, CONDITIONS, CampaignBlockers(), now=TEN)
    for progress in campaign.scopes:
        waits.add(progress)
    return waits.messages


def test_only_the_newest_failures_keep_their_reason_and_all_are_listed() -> None:
    many = [scope(f"s{n}", vm(f"s{n}")) for n in range(MAX_WAVE_FAILURES + 5)]
    campaign = with_failures(many, "no power")
    assert list(campaign.wave_failures) == [f"s{n}" for n in range(5, MAX_WAVE_FAILURES + 5)]
    failed = {each.scope: each for each in campaign.scopes if each.current_state is WaveState.FAILED}
    assert [(progress.scope, trouble.why) for progress, trouble in failed_waves(campaign, failed)] == [
        *((f"s{n}", "see the campaign's journal") for n in range(5)),
        *((f"s{n}", "no power") for n in range(5, MAX_WAVE_FAILURES + 5)),
    ]
    said = explain(campaign)
    assert said[MAX_NAMES_SHOWN - 1] == "wave 1 of s104 has failed: no power; retry it or skip it"
    assert said[MAX_NAMES_SHOWN] == "95 more waves failed before; retry or skip the failed waves"


def test_unknown_outcome_is_reported_with_every_vm() -> None:
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
        "wave 1 of web has an unknown outcome: web-0: no power; whether the work on web-1 was done is unknown: "
        "the probe ended with 1; web-2: no reason was given; retry it, which does all of it again, or skip it"
    )
    assert (hand.entries, hand.record.failures) == ([], 1), "it has failed once"
    assert decode(encode(hand.record)) == hand.record


def test_event_saved_by_a_version_without_campaigns_is_decoded() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    saved = msgspec.to_builtins(hand.scopes["web"].events[0])
    assert saved.pop("campaign") == KERNEL
    assert "cleared" not in saved
    old = msgspec.convert(saved, Event)
    assert (old.campaign, old.cleared) == ("", False)


FIRST_END = TEN + 16 * MINUTE


def gated_rollout(**policy: Any) -> RolloutDriver:
    """Return a campaign with a gate, whose first wave has just ended and whose second one is announced."""
    hand = RolloutDriver(web(), gate="health", gap=timedelta(0), **policy)
    hand.put_wave("web", 1, WaveState.DONE, FIRST_END)
    hand.now = FIRST_END
    hand.announce_next()
    return hand


def test_gate_is_checked_again_after_each_wave() -> None:
    hand = gated_rollout()
    approved = approve(hand.scopes["web"], "web-1", [hand.scopes["web"].events[0].id], CONDITIONS, now=FIRST_END).scope
    assert approved is not None
    hand.scopes["web"] = approved
    hand.find(GateOpened("web", 2, asked_at=FIRST_END - 10 * SECOND))
    assert hand.decide() == [CheckGate("web", 2)]
    hand.report(CheckGate("web", 2), GateOpened("web", 2, asked_at=FIRST_END))
    assert [type(action) for action in hand.decide()] == [ClearWave]


def test_open_gate_counts_for_a_minute_after_a_check_that_took_longer() -> None:
    hand = gated_rollout()
    hand.now += 15 * MINUTE
    assert hand.decide() == [CheckGate("web", 2)]
    asked_at, hand.now = hand.now, hand.now + 10 * MINUTE
    hand.report(CheckGate("web", 2), GateOpened("web", 2, asked_at=asked_at))
    assert [type(action) for action in hand.decide()] == [ClearWave]


def test_gate_is_checked_again_a_minute_after_it_was_found_open() -> None:
    hand = gated_rollout()
    hand.find(GateOpened("web", 2, asked_at=FIRST_END))
    hand.now += 15 * MINUTE
    assert hand.decide() == [CheckGate("web", 2)]


def test_closed_gate_is_forgotten_when_no_wave_waits_for_it() -> None:
    """Nobody checks it then: found closed again later, it has not been closed all the time."""
    hand = gated_rollout(gate_patience=20 * MINUTE)
    hand.now += 15 * MINUTE
    assert hand.decide() == [CheckGate("web", 2)]
    hand.report(CheckGate("web", 2), GateClosed("web", 2, "error rate 7%"))
    closed_at = hand.now
    assert (hand.decide(), closed_since(hand)) == ([], closed_at)
    waiting = hand.scopes["web"]
    held = operations.hold(waiting, by="bob", reason="disk swap", now=hand.now).scope
    assert held is not None
    hand.scopes["web"] = held
    assert (hand.decide(), closed_since(hand)) == ([], None)
    hand.now += 60 * MINUTE
    hand.scopes["web"] = waiting
    assert hand.decide() == [CheckGate("web", 2)]
    hand.report(CheckGate("web", 2), GateClosed("web", 2, "error rate 7%"))
    assert (hand.decide(), hand.record.state, closed_since(hand)) == ([], CampaignState.RUNNING, hand.now)


def closed_since(hand: RolloutDriver) -> datetime | None:
    return None if hand.record.gate is None else hand.record.gate.since


def test_gate_is_not_asked_for_a_wave_behind_one_that_waits_for_room() -> None:
    hand = RolloutDriver(web("a"), web("b"), gate="health", gap=timedelta(0), vms_at_once=Limit(2))
    ends = {"a": TEN + 16 * MINUTE, "b": TEN + 16 * MINUTE + 10 * SECOND}
    for name, end in ends.items():
        hand.put_wave(name, 1, WaveState.DONE, end)
    hand.now = ends["b"]
    for action in hand.decide():
        assert isinstance(action, AnnounceWave)
        hand.announce(action)
    for name in ends:
        event = hand.scopes[name].events[0]
        approved = approve(hand.scopes[name], event.vms[0], [event.id], CONDITIONS, now=hand.now).scope
        assert approved is not None
        hand.scopes[name] = approved
    hand.find(GateOpened("a", 2, asked_at=ends["a"]))
    hand.load.reserve("other", Load("c", ("c-hv-0",), 2))
    assert (hand.decide(), hand.decision.blockers.at_gate, hand.decision.blockers.has_limit) == ([], (), True)
    hand.load.release(["other"])
    assert [(type(action), action.scope) for action in hand.decide()] == [(ClearWave, "a"), (CheckGate, "b")]
