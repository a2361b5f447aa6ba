"""Enablement: the first request of a VM enables its scope, and an idle scope is disabled."""

from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.core.change import Draft
from forewarn.core.enablement import SEEN_SAVE_INTERVAL, disable_if_idle, idle_at, mark_seen, needs_save
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, HostState, Outage, Policy, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope

DAY = timedelta(hours=24)
HOUR = timedelta(hours=1)
CONTEXT = RuleContext()


def enabled_scope(seen_at: datetime = NOW) -> Scope:
    return saved_scope(mark_seen(a_scope([a_vm("v0")]), now=seen_at, epoch="e2"))


def test_first_request_enables_the_scope_and_keeps_its_epoch() -> None:
    scope = a_scope([a_vm("v0")])
    change = mark_seen(scope, now=NOW, epoch="e2")
    enabled = msgspec.structs.replace(
        scope, enabled=True, was_enabled=True, seen_at=NOW, entries=scope.entries + 1, epoch="e1"
    )
    assert change.scope == enabled
    assert [(entry.kind, entry.by, entry.facts) for entry in change.entries] == [
        (EntryKind.ENABLED, "guest", {"epoch": "e1"})
    ]


def test_scope_that_is_enabled_again_begins_a_new_epoch_with_its_open_events() -> None:
    disabled = msgspec.structs.replace(enabled_scope(), enabled=False)
    disabled = saved_scope(schedule(disabled, a_request("v0", notice=HOUR, unannounced=True), CONTEXT, now=NOW))
    assert [event.announced for event in disabled.events] == [False]
    change = mark_seen(disabled, now=NOW, epoch="e2")
    scope = saved_scope(change)
    assert (scope.epoch, scope.incarnation, [event.announced for event in scope.events]) == ("e2", 1, [True])
    assert [entry.kind for entry in change.entries] == [EntryKind.ANNOUNCED, EntryKind.ENABLED]


def test_time_of_a_request_is_saved_once_an_hour() -> None:
    scope = enabled_scope()
    assert not needs_save(scope, now=NOW + SEEN_SAVE_INTERVAL)
    assert mark_seen(scope, now=NOW + SEEN_SAVE_INTERVAL, epoch="e2").scope is scope
    late = NOW + SEEN_SAVE_INTERVAL + timedelta.resolution
    assert needs_save(scope, now=late)
    change = mark_seen(scope, now=late, epoch="e2")
    assert (saved_scope(change).seen_at, change.entries) == (late, ())


def test_scope_without_a_request_never_becomes_idle() -> None:
    assert needs_save(a_scope(), now=NOW)
    assert idle_at(a_scope(), CONTEXT, None) is None
    assert idle_at(enabled_scope(), RuleContext(policy=EMULATOR), None) is None


def test_scope_is_idle_a_day_after_its_newest_request() -> None:
    scope = enabled_scope()
    assert idle_at(scope, CONTEXT, None) == NOW + DAY
    assert idle_at(scope, CONTEXT, NOW + HOUR) == NOW + HOUR + DAY
    assert idle_at(scope, CONTEXT, NOW - HOUR) == NOW + DAY


@pytest.mark.parametrize(
    ("outages", "later"),
    [
        ([(-2, -1)], 0),
        ([(-1, 1)], 1),
        ([(2, 5)], 3),
        ([(20, 30)], 10),
        ([(24, 30)], 0),
        ([(20, 26), (25, 28)], 9),
        ([(25, 27), (2, 5)], 5),
    ],
    ids=[
        "before the request",
        "during the request",
        "within the day",
        "over the end of the day",
        "after the day",
        "one reaches into the next",
        "in any order",
    ],
)
def test_outage_does_not_count_towards_the_idle_timeout(outages: list[tuple[int, int]], later: int) -> None:
    """Outages and the delay are in hours after the last request."""
    context = RuleContext(
        outages=tuple(Outage(began_at=NOW + begin * HOUR, ended_at=NOW + end * HOUR) for begin, end in outages)
    )
    assert idle_at(enabled_scope(), context, None) == NOW + DAY + later * HOUR


def test_idle_scope_is_disabled_at_the_moment_and_not_before() -> None:
    context = RuleContext(policy=Policy(idle_after=HOUR))
    scope = enabled_scope()
    draft = Draft(scope, NOW + HOUR - timedelta.resolution)
    disable_if_idle(draft, context, None)
    assert draft.finish(None).scope is scope
    draft = Draft(scope, NOW + 2 * HOUR)
    disable_if_idle(draft, context, NOW + HOUR)
    change = draft.finish(None)
    disabled = saved_scope(change)
    assert (disabled.enabled, disabled.was_enabled, disabled.seen_at) == (False, True, NOW + HOUR)
    assert [(entry.kind, entry.by) for entry in change.entries] == [(EntryKind.DISABLED, "clock")]


def test_scope_with_a_silent_host_does_not_become_idle() -> None:
    scope = saved_scope(mark_seen(a_scope([a_vm("v0", host="hv-0"), a_vm("v1", host="hv-1")]), now=NOW, epoch="e2"))
    heard, silent = HostState(), HostState(silent_since=NOW)
    assert idle_at(scope, RuleContext(hosts={"hv-0": heard, "hv-1": heard}), None) == NOW + DAY
    assert idle_at(scope, RuleContext(hosts={"hv-0": heard, "hv-1": silent}), None) is None
    assert idle_at(scope, RuleContext(hosts={"hv-0": heard}), None) == NOW + DAY
