"""The effects of a campaign's actions on a scope."""

import msgspec

from forewarn.core.campaign.actions import (
    AnnounceWave,
    ClearWave,
    CloseScope,
    Finding,
    ReadOutcome,
    RetryEvent,
    ScopeAction,
    ScopeClosed,
    WaveAnnounced,
    WaveEnded,
    WaveRefused,
    WithdrawEvent,
)
from forewarn.core.campaign.commands import pause, skip
from forewarn.core.campaign.history import ScopeHistory, read_history
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.record import WaveState
from forewarn.core.campaign.scope_rules import (
    announce_wave,
    clear_wave,
    close_scope,
    execute,
    retry_event,
    withdraw_event,
)
from forewarn.core.campaign.spec import Window
from forewarn.core.change import Change
from forewarn.core.event import State
from forewarn.core.impact import Failed
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.journal import EntryKind
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from tests.core.campaign.rollout_driver import CONDITIONS, KERNEL, MINUTE, RolloutDriver, web
from tests.core.sample_scopes import TEN

NOTHING: ScopeHistory = read_history((), KERNEL)
ANNOUNCE = AnnounceWave("web", 1, TEN + 15 * MINUTE, Load("web", ("web-hv-0",), 1))


def test_wave_includes_only_vms_that_are_not_done() -> None:
    hand = RolloutDriver(web())
    change = announce_wave(web(), ANNOUNCE, hand.record, hand.index, NOTHING, CONDITIONS, now=TEN)
    assert isinstance(change.result, WaveAnnounced)
    assert (change.result.vms, change.result.not_before) == (1, TEN + 15 * MINUTE)
    done = NOTHING._replace(done=frozenset({"web-0"}))
    change = announce_wave(web(), ANNOUNCE, hand.record, hand.index, done, CONDITIONS, now=TEN)
    assert isinstance(change.result, WaveAnnounced)
    assert (change.scope, change.result.not_before) == (web(), None)


def test_wave_is_announced_only_if_a_document_shows_its_events() -> None:
    hand, production = RolloutDriver(web()), RuleContext()
    for enabled in (False, True):
        scope = msgspec.structs.replace(web(), enabled=enabled)
        change = announce_wave(scope, ANNOUNCE, hand.record, hand.index, NOTHING, production, now=TEN)
        assert isinstance(change.result, WaveAnnounced)
        assert (change.result.announced, change.result.not_before) == (enabled, TEN + 15 * MINUTE)


def test_refused_announcement_is_a_finding() -> None:
    hand = RolloutDriver(web())
    far = AnnounceWave("web", 1, TEN.replace(year=TEN.year + 2), ANNOUNCE.load)
    change = execute(far, web(), hand.record, hand.index, (), CONDITIONS, now=TEN)
    assert isinstance(change.result, WaveRefused)
    assert (change.scope, change.entries, change.result.scope, change.result.n) == (web(), (), "web", 1)


def test_reading_a_scope_does_not_change_it() -> None:
    hand = RolloutDriver(web())
    cases: tuple[tuple[ScopeAction, Finding], ...] = (
        (ReadOutcome("web", 1), WaveEnded("web", 1, ())),
        (CloseScope("web"), ScopeClosed("web", ((0, 1), (1, 1)))),
    )
    for action, finding in cases:
        assert execute(action, web(), hand.record, hand.index, (), CONDITIONS, now=TEN) == Change(web(), (), finding)


def test_stopped_campaign_announces_and_clears_nothing() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    stopped, scope = pause(hand.record, by="bob", now=TEN).record, hand.scopes["web"]
    assert announce_wave(web(), ANNOUNCE, stopped, hand.index, NOTHING, CONDITIONS, now=TEN).result is None
    clear = ClearWave("web", 1, (scope.events[0].id,), ())
    assert clear_wave(scope, clear, stopped, hand.index, CONDITIONS, now=TEN + 15 * MINUTE).scope is scope


def test_skipped_wave_is_neither_announced_nor_cleared() -> None:
    """The index may be older than the record: a person's command is saved while actions are in progress."""
    hand = RolloutDriver(web())
    skipped = skip(hand.record, "web", by="bob", why="not now", now=TEN).record
    change = announce_wave(web(), ANNOUNCE, skipped, hand.index, NOTHING, CONDITIONS, now=TEN)
    assert (change.scope, change.entries, change.result) == (web(), (), None)
    hand.announce_next()
    skipped, scope = skip(hand.record, "web", by="bob", why="not now", now=TEN).record, hand.scopes["web"]
    clear = ClearWave("web", 1, (scope.events[0].id,), ())
    assert clear_wave(scope, clear, skipped, hand.index, CONDITIONS, now=TEN + 15 * MINUTE).scope is scope


def test_announced_wave_is_not_announced_again() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    change = announce_wave(web(), ANNOUNCE, hand.record, hand.index, NOTHING, CONDITIONS, now=TEN)
    assert (change.scope, change.entries, change.result) == (web(), (), None)


def test_nothing_is_cleared_after_the_window_has_closed() -> None:
    hand = RolloutDriver(web(), windows=(Window(start="10:00", end="10:20"),))
    hand.announce_next()
    scope = hand.scopes["web"]
    clear = ClearWave("web", 1, (scope.events[0].id,), ())
    late = clear_wave(scope, clear, hand.record, hand.index, CONDITIONS, now=TEN + 20 * MINUTE)
    assert late.scope is scope
    in_time = clear_wave(scope, clear, hand.record, hand.index, CONDITIONS, now=TEN + 19 * MINUTE).scope
    assert in_time is not None
    assert in_time.events[0].state is State.STARTED


def test_ended_event_is_neither_withdrawn_nor_retried() -> None:
    withdraw = WithdrawEvent("web", KERNEL, "bob", "no")
    assert withdraw_event(web(), withdraw, CONDITIONS, now=TEN).entries == ()
    assert retry_event(web(), RetryEvent("web", KERNEL, "bob", None), now=TEN).entries == ()


def test_repeated_action_does_not_retry_what_has_failed_again() -> None:
    hand = RolloutDriver(web())
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)
    (event,) = hand.scopes["web"].events
    hand.scopes["web"] = fail_work(hand.scopes["web"], event.id)
    action = RetryEvent("web", event.id, "bob", hand.scopes["web"].entries)
    retried = retry_event(hand.scopes["web"], action, now=hand.now)
    assert [(entry.kind, entry.vms) for entry in retried.entries] == [(EntryKind.IMPACT_RETRIED, ("web-0",))]
    assert retried.scope is not None
    again = fail_work(retried.scope, event.id)
    assert retry_event(again, action, now=hand.now) == Change(again, (), None)


def fail_work(scope: Scope, event: str) -> Scope:
    """Begin the work on web-0, and let it fail."""
    begun = begin(scope, event, "web-0", now=scope.changed_at).scope
    assert begun is not None
    failed = settle(begun, event, "web-0", Failed("no power"), CONDITIONS, now=scope.changed_at).scope
    assert failed is not None
    return failed


def test_vms_without_an_event_are_left_over_unless_their_wave_was_skipped() -> None:
    hand = RolloutDriver(web())
    touched = NOTHING._replace(touched=frozenset({"web-0"}), outcomes={1: ()})
    hand.put_wave("web", 1, WaveState.DONE, TEN)
    assert close_scope("web", web(), hand.index, touched) == ScopeClosed("web", ((1, 1),))
    hand.put_wave("web", 2, WaveState.SKIPPED, TEN)
    assert close_scope("web", web(), hand.index, touched) == ScopeClosed("web")
    assert close_scope("web", web(), hand.index, NOTHING) == ScopeClosed("web"), "the journal does not have it"
    assert close_scope("web", None, hand.index, touched) == ScopeClosed("web")
