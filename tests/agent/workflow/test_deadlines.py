"""How the time until an event is divided among handlers."""

from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from forewarn.agent.workflow.deadlines import MARGIN, MINIMUM_SLICE, TimeSlice, call_deadline, plan_time_slices
from forewarn.agent.workflow.state import HandlerStep
from tests.agent.harness import NOON, event, seconds, started


@pytest.mark.parametrize(
    ("notice", "limit", "time"),
    [
        (900, 30, 30),
        (30, 60, 29),
        (2, 60, 1),
        (1.5, 60, None),
        (1.5, 0.5, 0.5),
        (0, 60, None),
        (-60, 60, None),
        (None, 60, 60),
    ],
)
def test_time_slice_is_the_limit_or_the_remaining_time(notice: float | None, limit: float, time: float | None) -> None:
    until = call_deadline(None if notice is None else NOON + seconds(notice), seconds(limit), now=NOON)
    assert until == (None if time is None else NOON + seconds(time))


def test_time_slices_of_a_preempt_follow_importance() -> None:
    steps = [
        HandlerStep(handler="tidy", importance=1, time_limit=seconds(5)),
        HandlerStep(handler="upload", importance=5, time_limit=seconds(60)),
        HandlerStep(handler="checkpoint", importance=9, time_limit=seconds(20)),
        HandlerStep(handler="drain", importance=9, time_limit=seconds(10)),
    ]
    assert plan_time_slices(event(at=NOON + seconds(30)), steps, now=NOON) == (
        TimeSlice("checkpoint", seconds(20)),
        TimeSlice("drain", seconds(10)),
        TimeSlice("upload", seconds(9)),
        TimeSlice("tidy", None),
    )


def test_started_event_leaves_no_time_slices() -> None:
    assert plan_time_slices(started(event()), [HandlerStep(handler="a")], now=NOON) == (TimeSlice("a", None),)


@pytest.mark.parametrize("at", [None, NOON, NOON - timedelta(hours=2)], ids=str)
def test_unknown_or_passed_deadline_does_not_shorten_slices(at: datetime | None) -> None:
    assert plan_time_slices(event(at=at), [HandlerStep(handler="a")], now=NOON) == (TimeSlice("a", seconds(30)),)


@given(
    notice=st.integers(1, 2000),
    limits=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), max_size=8),
)
def test_slices_end_before_the_event_and_only_less_important_handlers_are_skipped(
    notice: int, limits: list[tuple[int, int]]
) -> None:
    steps = [
        HandlerStep(handler=str(number), importance=importance, time_limit=seconds(limit))
        for number, (importance, limit) in enumerate(limits)
    ]
    importances = {step.handler: step.importance for step in steps}
    found = plan_time_slices(event(at=NOON + seconds(notice)), steps, now=NOON)
    assert [importances[each.handler] for each in found] == sorted(importances.values(), reverse=True)
    longest: dict[int, timedelta] = {}
    for each in found:
        longest[importances[each.handler]] = max(
            longest.get(importances[each.handler], seconds(0)), each.time or seconds(0)
        )
    assert sum(longest.values(), seconds(0)) <= max(seconds(notice) - MARGIN, seconds(0))
    assert all(each.time is None or each.time >= MINIMUM_SLICE for each in found)
    without = [importances[each.handler] for each in found if each.time is None]
    assert all(importances[each.handler] >= max(without, default=0) for each in found if each.time is not None)
