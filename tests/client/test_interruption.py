"""`interruptible`: the flag that is set when an event is going to interrupt this VM."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.client import Appeared, Change, Changed, Ending, Event, Gone, Interruption, Started

NOW = datetime(2016, 9, 19, 18, 0, tzinfo=UTC)


def make(id_: str = "E1", status: str = "Scheduled", *, minutes: int | None = 15, **more: Any) -> Event:
    """Return an event that starts in this many minutes."""
    not_before = None if minutes is None else NOW + timedelta(minutes=minutes)
    return Event(
        id=id_, status=status, type=more.pop("type", "Reboot"), resources=("a",), not_before=not_before, **more
    )


SOON, LATER = make(), make("E2", minutes=30)
UNKNOWN = make("E3", minutes=None)
RUNNING = make("E4", "Started", minutes=None)
HARMLESS = make("E5", duration=timedelta(0))
HARMFUL = make("E5", duration=timedelta(seconds=5))
FREEZE = make("E6", type="Freeze")


def told(*changes: Change, types: tuple[str, ...] = ()) -> Interruption:
    stop = Interruption(types, lambda: NOW)
    stop.follow(changes)
    return stop


@pytest.mark.parametrize(
    ("changes", "event", "left"),
    [
        pytest.param([], None, None, id="nothing"),
        pytest.param([Appeared(SOON)], SOON, timedelta(minutes=15), id="announced"),
        pytest.param([Appeared(LATER), Appeared(SOON)], SOON, timedelta(minutes=15), id="the-sooner"),
        pytest.param([Appeared(SOON), Appeared(LATER)], SOON, timedelta(minutes=15), id="the-sooner-first"),
        pytest.param([Appeared(SOON), Appeared(UNKNOWN)], UNKNOWN, None, id="unknown-start"),
        pytest.param([Appeared(UNKNOWN), Appeared(RUNNING)], RUNNING, timedelta(0), id="under-way"),
        pytest.param(
            [Appeared(SOON), Appeared(LATER), Gone(SOON, Ending.WITHDRAWN)], LATER, timedelta(minutes=30), id="next"
        ),
        pytest.param([Appeared(SOON), Gone(SOON, Ending.WITHDRAWN)], SOON, timedelta(minutes=15), id="withdrawn"),
        pytest.param(
            [Appeared(SOON), Started(make(status="Started", minutes=None), SOON)],
            make(status="Started", minutes=None),
            timedelta(0),
            id="started",
        ),
        pytest.param(
            [Appeared(SOON), Changed(make(minutes=9), SOON)], make(minutes=9), timedelta(minutes=9), id="moved"
        ),
        pytest.param([Appeared(HARMLESS)], None, None, id="interrupts-nothing"),
        pytest.param(
            [Appeared(HARMLESS), Changed(HARMFUL, HARMLESS)], HARMFUL, timedelta(minutes=15), id="does-after-all"
        ),
    ],
)
def test_most_urgent_event_sets_the_flag(changes: list[Change], event: Event | None, left: timedelta | None) -> None:
    stop = told(*changes)
    assert (stop.is_set(), stop.event, stop.time_left()) == (event is not None, event, left)


def test_flag_may_be_limited_to_some_types() -> None:
    stop = told(Appeared(FREEZE), Appeared(LATER), types=("Reboot", "Redeploy"))
    assert stop.event == LATER
    assert not told(Appeared(FREEZE), types=("Reboot",)).is_set()


def test_wait_times_out() -> None:
    assert told().wait(0.0) is False
