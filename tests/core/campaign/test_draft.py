"""CampaignDraft: how waves end, fail and halt a campaign, and which entries and notifications that adds."""

import msgspec
import pytest

from forewarn.core.campaign.draft import CampaignBlockers, CampaignDecision, CampaignDraft
from forewarn.core.campaign.limits import ExceededLimit
from forewarn.core.campaign.record import (
    MAX_FAILURE_BYTES,
    Campaign,
    CampaignState,
    Notification,
    StateChange,
    Wave,
    WaveFailure,
    WaveState,
)
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import EventOutcome
from tests.core.campaign.rollout_driver import campaign_over, web
from tests.core.sample_scopes import TEN


def a_campaign(state: CampaignState = CampaignState.RUNNING, **policy: object) -> Campaign:
    return msgspec.structs.replace(campaign_over(web("a"), web("b"), **policy), state=state)


def test_draft_in_which_nothing_happened_gives_the_record_itself() -> None:
    record = a_campaign()
    decision = CampaignDraft(record).finish()
    assert decision == CampaignDecision(record)
    assert decision.record is record


def test_entries_are_numbered_and_by_the_campaign_unless_an_actor_is_named() -> None:
    record = a_campaign()
    draft = CampaignDraft(record)
    draft.add_entry(EntryKind.GATE_CLOSED, now=TEN, why='it is "sick"', gate="health")
    draft.add_wave_entry(EntryKind.WAVE_SKIPPED, "b", 2, now=TEN, by="ann")
    decision = draft.finish()
    assert decision.entries == (
        Entry(
            n=2, at=TEN, kind=EntryKind.GATE_CLOSED, by="campaign:kernel", why="it is  sick ", facts={"gate": "health"}
        ),
        Entry(
            n=3,
            at=TEN,
            kind=EntryKind.WAVE_SKIPPED,
            by="ann",
            facts={"scope": "b", "wave": "2", "update_domain": "1"},
        ),
    )
    assert decision.record == msgspec.structs.replace(record, entries=3)


def test_wave_is_changed_in_its_scope_only() -> None:
    record = a_campaign()
    draft = CampaignDraft(record)
    before = draft.put_wave("b", 2, WaveState.ANNOUNCED, record.moment(record.scopes[1], 60))
    assert before == record.scopes[1].wave(2)
    scopes = draft.finish().record.scopes
    assert scopes[0] is record.scopes[0]
    assert scopes[1].waves == (
        record.scopes[1].wave(1),
        Wave(1, before.planned, WaveState.ANNOUNCED, 60, 1),
    )
    assert (draft.has("b"), draft.has("c")) == (True, False)


def test_wave_that_is_no_longer_retrying_has_no_retry() -> None:
    draft = CampaignDraft(msgspec.structs.replace(a_campaign(), retries={"1/a": 7, "1/b": 8}))
    draft.put_wave("a", 1, WaveState.CLEARED, TEN)
    assert draft.finish().record.retries == {"1/b": 8}


def test_completed_wave_is_done_and_its_failure_and_attempts_are_forgotten() -> None:
    record = a_campaign(halt_after=None)
    draft = CampaignDraft(msgspec.structs.replace(record, attempts={"1/a": 2, "1/b": 3}))
    draft.fail("a", 1, "no power", now=TEN)
    draft.settle("a", 1, [EventOutcome.COMPLETED, EventOutcome.CANCELED], now=TEN)
    decision = draft.finish()
    assert (decision.record.scopes[0].wave(1).state, decision.record.wave_failures, decision.record.attempts) == (
        WaveState.DONE,
        {},
        {"1/b": 3},
    )
    assert [entry.kind for entry in decision.entries] == [EntryKind.WAVE_FAILED, EntryKind.WAVE_SETTLED]


def test_wave_with_a_failed_event_has_failed_once() -> None:
    draft = CampaignDraft(a_campaign(halt_after=None))
    for _ in range(2):
        draft.settle("a", 1, [EventOutcome.COMPLETED, EventOutcome.FAILED], now=TEN)
    decision = draft.finish()
    assert (decision.record.failures, [entry.kind for entry in decision.entries]) == (1, [EntryKind.WAVE_FAILED])


@pytest.mark.parametrize(
    ("state", "wave", "kind"),
    [
        (CampaignState.RUNNING, WaveState.SKIPPED, EntryKind.WAVE_SKIPPED),
        (CampaignState.ABORTING, WaveState.PLANNED, EntryKind.WAVE_LEFT),
    ],
)
def test_wave_whose_events_were_cancelled_is_skipped_or_left(
    state: CampaignState, wave: WaveState, kind: EntryKind
) -> None:
    draft = CampaignDraft(a_campaign(state))
    draft.settle("a", 1, [EventOutcome.CANCELED], now=TEN)
    decision = draft.finish()
    assert (decision.record.scopes[0].wave(1).state, [entry.kind for entry in decision.entries]) == (wave, [kind])


def test_campaign_halts_at_the_failure_that_is_one_too_many() -> None:
    draft = CampaignDraft(a_campaign(halt_after=2), notify=True)
    draft.fail("a", 1, "no power", now=TEN)
    assert draft.record.state is CampaignState.RUNNING
    draft.fail("b", 1, "w" * 500, unknown=True, now=TEN)
    decision = draft.finish()
    record = decision.record
    assert (record.state, record.failures) == (CampaignState.HALTED, 2)
    assert record.wave_failures == {
        "a": WaveFailure(wave=1, at=TEN, why="no power"),
        "b": WaveFailure(wave=1, at=TEN, why="w" * MAX_FAILURE_BYTES, unknown=True),
    }
    halted = decision.entries[-1]
    assert (halted.kind, halted.by, halted.n) == (EntryKind.CAMPAIGN_HALTED, "campaign:kernel", 4)
    assert record.state_change == StateChange(by="campaign:kernel", at=TEN, why=halted.why)
    assert record.notifications == (Notification(n=4, what="halted", at=TEN, why=halted.why),)


def test_campaign_that_does_not_run_is_not_halted() -> None:
    draft = CampaignDraft(a_campaign(CampaignState.PAUSED, halt_after=1))
    draft.fail("a", 1, "no power", now=TEN)
    assert draft.record.state is CampaignState.PAUSED


def test_newer_failure_of_a_scope_is_the_last_of_all() -> None:
    draft = CampaignDraft(a_campaign(halt_after=None))
    for scope in ("a", "b", "a"):
        draft.fail(scope, 1, "no power", now=TEN)
    assert list(draft.record.wave_failures) == ["b", "a"]


def test_reason_of_a_known_failure_is_updated() -> None:
    draft = CampaignDraft(a_campaign(halt_after=None))
    draft.update_failure("a", "more", unknown=True)
    assert draft.record.wave_failures == {}
    draft.fail("a", 1, "no power", now=TEN)
    draft.update_failure("a", "more", unknown=True)
    assert draft.record.wave_failures == {"a": WaveFailure(wave=1, at=TEN, why="more", unknown=True)}


def test_blockers_have_a_limit_if_one_is_exceeded() -> None:
    limit = ExceededLimit(what="vms", limit=1, wanted=2)
    assert [
        blockers.has_limit
        for blockers in (
            CampaignBlockers(),
            CampaignBlockers(start_limit=limit),
            CampaignBlockers(announce_limit=limit),
            CampaignBlockers(at_gate=("a",), held_scopes=frozenset({"a"})),
        )
    ] == [False, True, True, False]
