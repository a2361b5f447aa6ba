"""The status of a scope in its campaign, derived only from the record and the scope."""

import msgspec
import pytest

from forewarn.core import operations
from forewarn.core.campaign.actions import (
    CloseScope,
    ReadOutcome,
    RetryEvent,
    ScopeRemoved,
    SkippedWaveEnded,
    WaveEnded,
    WaveResumed,
    WaveStuck,
)
from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.draft import CampaignDraft
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.record import Campaign, CampaignState, WaveState
from forewarn.core.campaign.status import InFlightWave, ScopeStatus, derive_status
from forewarn.core.impact import ImpactState
from forewarn.core.scope import EndedEvent, EventOutcome, Scope
from tests.core.campaign.rollout_driver import CONDITIONS, MINUTE, RolloutDriver, campaign_over, web, zones
from tests.core.sample_scopes import TEN


def status(record: Campaign, scope: Scope | None) -> ScopeStatus:
    """Derive the status of the only scope."""
    calendar = Calendar(record.spec, CONDITIONS, zones, since=record.started_at)
    return derive_status(record, record.scopes[0], 0, scope, CONDITIONS, calendar)


def with_wave(record: Campaign, state: WaveState, n: int = 1) -> Campaign:
    draft = CampaignDraft(record)
    draft.put_wave(record.scopes[0].scope, n, state, TEN)
    return draft.finish().record


def announced() -> RolloutDriver:
    """Return a campaign whose first wave is announced."""
    hand = RolloutDriver(web())
    hand.announce_next()
    return hand


def test_planned_wave_waits_for_its_turn_unless_the_scope_is_held() -> None:
    record = campaign_over(web())
    assert status(record, web()) == ScopeStatus(announce_turn=(900, 0))
    held = operations.hold(web(), by="bob", reason="audit", now=TEN).scope
    assert status(record, held) == ScopeStatus(is_held=True)


def test_announced_wave_is_in_flight_and_ready_when_its_notice_is_over() -> None:
    hand = announced()
    found = status(hand.record, hand.scopes["web"])
    load = Load("web", ("web-hv-0",), 1)
    assert (found.is_open, found.announce_turn, found.findings, found.actions) == (True, None, (), ())
    assert found.in_flight == InFlightWave(TEN + 15 * MINUTE, begun=False, load=load)
    assert found.ready is not None
    assert (found.ready.at, found.ready.n, found.ready.begun) == (TEN + 15 * MINUTE, 1, False)


def test_ready_events_are_in_the_order_in_which_they_may_start() -> None:
    hand = announced()
    (first,) = hand.scopes["web"].events
    later = msgspec.structs.replace(first, id="0" + first.id[1:], not_before=first.not_before + MINUTE)
    earlier = msgspec.structs.replace(first, id="1" + first.id[1:], not_before=first.not_before - MINUTE)
    scope = msgspec.structs.replace(hand.scopes["web"], events=(first, later, earlier))
    ready = status(hand.record, scope).ready
    assert ready is not None
    assert [event.id for event in ready.events] == [earlier.id, first.id, later.id]


def test_outcome_of_a_wave_without_open_events_is_in_the_scope_or_in_the_journal() -> None:
    hand = announced()
    request = hand.record.request("web", 1)
    forgotten = msgspec.structs.replace(hand.scopes["web"], events=())
    assert status(hand.record, forgotten).actions == (ReadOutcome("web", 1),)
    ended = EndedEvent(id="1", request=request, at=TEN, outcome=EventOutcome.COMPLETED)
    found = status(hand.record, msgspec.structs.replace(forgotten, ended=(ended,)))
    assert (found.findings, found.actions) == ((WaveEnded("web", 1, (EventOutcome.COMPLETED,)),), ())


def test_failure_is_found_once() -> None:
    hand = announced()
    (event,) = hand.scopes["web"].events
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)
    (event,) = hand.scopes["web"].events
    failed = msgspec.structs.replace(event.impacts[0], state=ImpactState.FAILED, why="no power")
    stuck = msgspec.structs.replace(hand.scopes["web"], events=(msgspec.structs.replace(event, impacts=(failed,)),))
    assert status(hand.record, stuck).findings == (WaveStuck("web", 1, "web-0: no power", unknown=False),)
    hand.scopes["web"] = stuck
    hand.decide()
    assert hand.wave("web", 1).state is WaveState.FAILED
    assert status(hand.record, stuck).findings == ()


@pytest.mark.parametrize(
    ("state", "retries", "is_requested", "is_failed"),
    [
        (ImpactState.FAILED, {"1/web": 7}, True, False),
        (ImpactState.FAILED, {"1/web": 6}, False, True),
        (ImpactState.FAILED, {}, True, False),
        (ImpactState.BEGUN, {"1/web": 7}, False, False),
    ],
    ids=["known to the request", "newer than the request", "requested in an older version", "retried"],
)
def test_request_for_a_retry_is_for_the_failures_that_it_has_seen(
    state: ImpactState, retries: dict[str, int], is_requested: bool, is_failed: bool
) -> None:
    hand = announced()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)
    (event,) = hand.scopes["web"].events
    impact = msgspec.structs.replace(event.impacts[0], state=state, why="no power", stuck_entry=7)
    scope = msgspec.structs.replace(hand.scopes["web"], events=(msgspec.structs.replace(event, impacts=(impact,)),))
    record = msgspec.structs.replace(with_wave(hand.record, WaveState.RETRYING), retries=retries)
    found = status(record, scope)
    request = RetryEvent("web", event.id, "campaign:kernel", retries.get("1/web"))
    failure = WaveStuck("web", 1, "web-0: no power", unknown=False)
    assert found.actions == ((request,) if is_requested else ())
    assert found.findings == (() if is_requested else (failure,) if is_failed else (WaveResumed("web", 1),))


def test_late_end_of_a_skipped_wave_is_found() -> None:
    record = with_wave(campaign_over(web()), WaveState.SKIPPED)
    at = TEN + 5 * MINUTE
    ended = EndedEvent(id="1", request=record.request("web", 1), at=at, outcome=EventOutcome.COMPLETED)
    scope = msgspec.structs.replace(web(), ended=(ended,))
    assert status(record, scope).findings == (SkippedWaveEnded("web", 1, record.seconds(record.scopes[0], at)),)


def test_scope_with_settled_waves_is_closed_and_a_removed_one_is_reported() -> None:
    done = with_wave(with_wave(campaign_over(web()), WaveState.DONE), WaveState.DONE, 2)
    assert status(done, web()) == ScopeStatus(n=3, actions=(CloseScope("web"),))
    assert status(done, None) == ScopeStatus(n=3, findings=(ScopeRemoved("web"),))


def test_ended_campaign_has_no_findings_or_actions() -> None:
    over = msgspec.structs.replace(campaign_over(web()), state=CampaignState.COMPLETED)
    assert status(over, web()) == status(over, None) == ScopeStatus()
