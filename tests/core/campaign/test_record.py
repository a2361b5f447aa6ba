"""The record of a campaign: its size, its times, the ids of its requests, and how it is encoded."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.campaign.actions import (
    GateClosed,
    WaveRefused,
)
from forewarn.core.campaign.commands import skip
from forewarn.core.campaign.record import (
    FAR_PAST,
    Campaign,
    CampaignEncoder,
    CampaignState,
    ScopeProgress,
    Wave,
    WaveState,
    check_size,
    coming_waves,
    decode,
    effective_counts,
    encode,
    failed_waves,
)
from forewarn.core.campaign.spec import Limit
from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_RECORD_BYTES
from tests.core.campaign.rollout_driver import KERNEL, RolloutDriver, campaign_over, web, with_failures
from tests.core.campaign.wave_counts import wave_counts
from tests.core.sample_scopes import TEN


def test_record_is_decoded_as_it_was_encoded() -> None:
    hand = RolloutDriver(web(), scopes_at_once=Limit(percent=10.0))
    hand.find(WaveRefused("web", 1, "no power"))
    hand.find(GateClosed("web", 2, "sick"))
    assert (hand.record.gate is not None, hand.wave("web", 1).state) == (True, WaveState.FAILED)
    assert decode(encode(hand.record)) == hand.record


def test_incremental_encoding_equals_the_full_one() -> None:
    hand, encoder = RolloutDriver(web("a"), web("b")), CampaignEncoder()
    encoder.remember(KERNEL)
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


def test_only_scopes_of_a_remembered_campaign_are_kept() -> None:
    record, encoder = campaign_over(web()), CampaignEncoder()
    assert (encoder(record), encoder._known) == (encode(record), {})
    encoder.remember(KERNEL)
    assert (encoder(record), list(encoder._known)) == (encode(record), [KERNEL])
    encoder.forget(KERNEL)
    assert (encoder(record), encoder._known) == (encode(record), {})


def test_times_of_waves_are_rounded_up_so_that_no_gap_is_too_short() -> None:
    campaign = campaign_over(web())
    progress = campaign.scopes[0]
    moment = TEN + timedelta(minutes=16, microseconds=1)
    assert campaign.moment(progress, campaign.seconds(progress, moment)) == TEN + timedelta(minutes=16, seconds=1)
    assert campaign.moment(progress, campaign.seconds(progress, TEN)) == TEN


def test_request_id_is_the_same_per_attempt_of_a_wave() -> None:
    campaign = campaign_over(web())
    again = msgspec.structs.replace(campaign, attempts={"1/web": 2})
    assert campaign.request("web", 1) == "1D8241EA-5D5C-582F-952A-A2CEB811D04D"
    assert len({campaign.request("web", 1), campaign.request("web", 2), again.request("web", 1)}) == 3


def test_coming_waves_are_those_that_are_not_announced() -> None:
    campaign = campaign_over(web("a"), web("b"))
    first, second = campaign.scopes
    announced = first.with_wave(1, first.wave(1).with_state(WaveState.ANNOUNCED, 0))
    campaign = msgspec.structs.replace(campaign, scopes=(announced, second))
    found = [(progress.scope, n) for progress, n, _ in coming_waves(campaign)]
    assert found == [("a", n) for n in range(2, 1 + len(first.waves))] + [
        ("b", n) for n in range(1, 1 + len(second.waves))
    ]
    for state in (CampaignState.ABORTING, CampaignState.ABORTED, CampaignState.COMPLETED):
        assert list(coming_waves(msgspec.structs.replace(campaign, state=state))) == []


def test_record_has_room_for_five_thousand_scopes_and_a_larger_campaign_is_refused() -> None:
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


def test_campaign_has_an_upper_case_id_and_starts_at_a_whole_second() -> None:
    campaign = campaign_over(web())
    for fields in ({"id": KERNEL.lower()}, {"id": "1"}, {"started_at": TEN + timedelta.resolution}):
        with pytest.raises(Invalid):
            msgspec.structs.replace(campaign, **fields)


def test_states_tell_what_is_over_and_what_is_aborted() -> None:
    assert [state for state in CampaignState if state.is_over] == [CampaignState.COMPLETED, CampaignState.ABORTED]
    assert [state for state in CampaignState if state.is_aborted] == [CampaignState.ABORTING, CampaignState.ABORTED]
    assert [state.text for state in WaveState if state.is_settled] == ["done", "skipped"]
    assert [state.text for state in WaveState if state.is_open] == ["announced", "cleared", "retrying"]


def progress_of(*states: WaveState) -> ScopeProgress:
    return ScopeProgress("web", 900, tuple(Wave(n, n * 60, state, n * 60 + 30, n) for n, state in enumerate(states)))


def test_current_wave_is_the_first_that_is_not_settled() -> None:
    done, failed, planned = WaveState.DONE, WaveState.FAILED, WaveState.PLANNED
    found = [
        (progress.current, progress.current_state)
        for progress in (
            progress_of(planned, planned),
            progress_of(done, failed),
            progress_of(WaveState.SKIPPED, done),
            progress_of(),
        )
    ]
    assert found == [(1, planned), (2, failed), (3, None), (1, None)]


def test_wave_of_a_scope_is_replaced_by_its_number() -> None:
    progress = progress_of(WaveState.DONE, WaveState.PLANNED, WaveState.PLANNED)
    wave = progress.wave(2).with_state(WaveState.ANNOUNCED, 7)
    assert wave == Wave(1, 60, WaveState.ANNOUNCED, 7, 1)
    assert progress.with_wave(2, wave) == ScopeProgress("web", 900, (progress.wave(1), wave, progress.wave(3)))


def test_scope_has_rested_a_gap_after_its_last_wave_that_had_vms() -> None:
    campaign, gap = campaign_over(web()), timedelta(minutes=30)
    progress = progress_of(WaveState.DONE, WaveState.DONE, WaveState.PLANNED)
    assert campaign.rested_at(progress, gap) == TEN + timedelta(seconds=900 + 90) + gap
    assert campaign.rested_at(progress_of(WaveState.DONE, WaveState.PLANNED), gap) == FAR_PAST


def test_waves_are_counted_by_state_and_what_an_abort_left_is_not_planned() -> None:
    scopes = (progress_of(WaveState.DONE, WaveState.DONE), progress_of(WaveState.PLANNED, WaveState.PLANNED))
    running = msgspec.structs.replace(campaign_over(web()), scopes=scopes)
    aborted = msgspec.structs.replace(running, state=CampaignState.ABORTED)
    counts = dict.fromkeys(WaveState, 0) | {WaveState.DONE: 2, WaveState.PLANNED: 2}
    assert effective_counts(running, counts) == counts
    assert effective_counts(aborted, counts) == counts | {WaveState.LEFT: 2, WaveState.PLANNED: 0}
    assert wave_counts(aborted) == {WaveState.DONE: 2, WaveState.LEFT: 2}
    assert aborted.effective_state(scopes[1].wave(1)) is WaveState.LEFT
    assert aborted.effective_state(scopes[0].wave(1)) is WaveState.DONE


def test_announced_wave_whose_events_no_document_shows_is_unannounced() -> None:
    driver = RolloutDriver(web())
    driver.announce_next()
    shown = driver.scopes["web"]
    events = tuple(msgspec.structs.replace(event, announced=False) for event in shown.events)
    hidden = msgspec.structs.replace(shown, events=events)
    (progress,) = driver.record.scopes
    assert progress.current_state is WaveState.ANNOUNCED
    cases = {shown: False, hidden: True, web(): False, None: False}
    assert {scope: driver.record.is_unannounced(progress, scope) for scope in cases} == cases
    cleared = progress.with_wave(1, progress.wave(1).with_state(WaveState.CLEARED, 0))
    assert not driver.record.is_unannounced(cleared, hidden)


def test_failed_waves_without_a_kept_reason_come_first() -> None:
    campaign = with_failures([web("a"), web("b")], "no power")
    failed = {progress.scope: progress for progress in campaign.scopes}
    without = msgspec.structs.replace(campaign, wave_failures={"a": campaign.wave_failures["a"]})
    assert [(progress.scope, failure.wave) for progress, failure in failed_waves(without, failed)] == [
        ("b", 1),
        ("a", 1),
    ]
    assert [progress.scope for progress, _ in failed_waves(without, {"b": failed["b"]})] == ["b"]


def test_wave_and_progress_are_stored_by_position() -> None:
    """Tens of thousands of them are in a record: names would take half of it."""
    progress = ScopeProgress("web", 900, (Wave(1, 60, WaveState.DONE, 90, 2),), 7, True)
    assert msgspec.json.encode(progress) == b'["web",900,[[1,60,3,90,2]],7,true]'
