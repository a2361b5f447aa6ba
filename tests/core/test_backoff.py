"""Pauses double up to the maximum, and never overflow."""

from datetime import timedelta
from itertools import islice

import pytest

from forewarn.core.backoff import backoff, pause_after


def test_pauses_double_up_to_the_maximum() -> None:
    assert list(islice(backoff(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_pauses_may_be_durations() -> None:
    pauses = islice(backoff(timedelta(seconds=10), timedelta(minutes=1)), 4)
    assert [pause.total_seconds() for pause in pauses] == [10, 20, 40, 60]


@pytest.mark.parametrize(("failures", "pause"), [(-3, 1.0), (0, 1.0), (1, 1.0), (2, 2.0), (10_000, 60.0)])
def test_pause_depends_only_on_the_number_of_failures(failures: int, pause: float) -> None:
    assert pause_after(failures, 1.0, 60.0) == pause
    assert pause_after(failures, timedelta(seconds=1), timedelta(minutes=1)) == timedelta(seconds=pause)
