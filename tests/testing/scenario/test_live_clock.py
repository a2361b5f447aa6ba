"""Clocks of a running service: a manual one is moved, a system clock is waited for."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.core.impact import ImpactState
from forewarn.testing.scenario.live_clock import ManualLiveClock, SystemLiveClock

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class FakeApi:
    """A service with a clock and the events of one scope."""

    def __init__(self, next_change_at: datetime | None = None, *events: Any) -> None:
        self._clock = SimpleNamespace(now=TEN, next_change_at=next_change_at)
        self.lists: list[list[Any]] = [list(events), []]
        self.moves: list[str] = []

    def clock(self) -> Any:
        return self._clock

    def advance(self, by: str) -> None:
        self.moves.append(by)

    def events(self, *, scope: str) -> list[Any]:
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]


class FakeWatcher:
    """A journal in which something new is found, or not."""

    def __init__(self, *, has_news: bool = True) -> None:
        self._has_news = has_news
        self.waits: list[float] = []

    def check(self) -> None:
        self.waits.append(0.0)

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self._has_news


@pytest.mark.parametrize(
    ("next_change_at", "moved", "has_next"),
    [
        (TEN + 5 * MINUTE, "5m", True),
        (TEN + 10 * MINUTE, "10m", True),
        (TEN + 11 * MINUTE, "10m", False),
        (None, "10m", False),
        (TEN - MINUTE, "0s", True),
    ],
    ids=["before the limit", "at the limit", "after the limit", "never", "overdue"],
)
def test_manual_clock_moves_to_the_next_change_or_to_the_limit(
    next_change_at: datetime | None, moved: str, has_next: bool
) -> None:
    api: Any = FakeApi(next_change_at)
    watcher: Any = FakeWatcher()
    calls: list[str] = []
    clock = ManualLiveClock(api, watcher, lambda: calls.append("before"))
    assert (clock.advance(TEN + 10 * MINUTE), api.moves, calls) == (has_next, [moved], ["before"])
    clock.settle()
    assert (api.moves[-1], clock.now(), clock.grace) == ("0s", TEN, timedelta(0))


def test_system_clock_is_waited_for_until_the_limit() -> None:
    api: Any = FakeApi()
    watcher: Any = FakeWatcher()
    clock = SystemLiveClock(api, watcher, lambda: ["web"])
    assert clock.advance(TEN + MINUTE)
    assert not clock.advance(TEN)
    assert watcher.waits == [60.0]


def an_event(**fields: Any) -> Any:
    values = {"started_at": None, "not_before": TEN, "explanation": (), "impacts": ()}
    return SimpleNamespace(**values | fields)


@pytest.mark.parametrize(
    ("event", "waits"),
    [
        (an_event(), 1),
        (an_event(not_before=TEN + MINUTE), 0),
        (an_event(explanation=("held",)), 0),
        (an_event(started_at=TEN, impacts=[SimpleNamespace(vm="v", state=ImpactState.PENDING)]), 1),
        (an_event(started_at=TEN, impacts=[SimpleNamespace(vm="v", state=ImpactState.BEGUN)]), 0),
    ],
    ids=["due", "not due", "held", "work to begin", "work begun"],
)
def test_system_clock_settles_when_nothing_is_about_to_happen(event: Any, waits: int) -> None:
    api: Any = FakeApi(None, event)
    watcher: Any = FakeWatcher()
    SystemLiveClock(api, watcher, lambda: ["web"]).settle()
    assert len(watcher.waits) == waits


def test_service_that_does_not_settle_is_given_up() -> None:
    api: Any = FakeApi(None, an_event())
    watcher: Any = FakeWatcher(has_news=False)
    SystemLiveClock(api, watcher, lambda: ["web"]).settle()
    assert len(watcher.waits) == 1
