"""Tests of stalls: the machine has no processor for the exam or for the handler."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn.testing.exam.stall_watcher import (
    MAX_SHARE,
    TICK,
    WHOLE,
    Stall,
    StallWatcher,
    available_seconds,
    pause_seconds,
)

GUARD = 60.0
TICKS = 20

CROWD = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(3):
    if os.fork() == 0:
        break
print(flush=True)
while os.getppid() != 1:
    pass
"""
"""Four processes that all want one processor."""


@pytest.mark.parametrize(
    ("stalls", "begin", "end", "expected"),
    [
        ([], 1.0, 4.0, 3.0),
        ([Stall(2.0, 4.0, 1.0)], 0.0, 10.0, 9.0),
        ([Stall(2.0, 4.0, 1.0)], 3.0, 10.0, 6.5),
        ([Stall(2.0, 4.0, 1.0)], 4.0, 10.0, 6.0),
        ([Stall(0.0, 4.0, 3.0), Stall(6.0, 8.0, 1.0)], 0.0, 8.0, 4.0),
        ([Stall(0.0, 10.0, 10.0)], 0.0, 20.0, 11.0),
    ],
)
def test_available_seconds_are_those_without_stalls(
    stalls: list[Stall], begin: float, end: float, expected: float
) -> None:
    assert available_seconds(stalls, begin, end) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stall", "expected"),
    [(Stall(2.0, 4.0, 1.8), 10.0), (Stall(2.0, 4.0, 1.8, 1.0), 9.0), (Stall(8.0, 10.0, 1.8), 8.2)],
    ids=["the exam had no processor", "the program had none", "the request arrived during a stall"],
)
def test_pause_is_shorter_only_by_delays_of_the_program_and_of_its_request(stall: Stall, expected: float) -> None:
    assert pause_seconds([stall], 0.0, 10.0) == pytest.approx(expected)


@contextmanager
def run_watcher(program: int | None = None, *, ticks: int = TICKS) -> Iterator[StallWatcher]:
    """Yield a watcher that has measured a number of times."""
    done, left = threading.Event(), iter(range(ticks - 1))
    with StallWatcher(lambda: None if next(left, None) is not None else done.set()) as watcher:
        if program is not None:
            watcher.watch_program(lambda: program)
        assert done.wait(GUARD)
        yield watcher


def test_every_second_of_a_stall_can_be_subtracted() -> None:
    stalls = [Stall(0.0, 10.0, 10.0, 10.0)]
    assert available_seconds(stalls, 0.0, 20.0, share=WHOLE) == pytest.approx(10.0)
    assert pause_seconds(stalls, 0.0, 20.0, share=WHOLE) == pytest.approx(10.0)
    assert pause_seconds(stalls, 0.0, 20.0) == pytest.approx(11.0)


def test_stall_never_takes_all_the_time() -> None:
    with run_watcher(ticks=3) as watcher:
        assert all(0.0 < stall.lost <= stall.end - stall.begin for stall in watcher.stalls)
        assert watcher.elapsed >= 3 * TICK * (1 - MAX_SHARE)


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux measures how long processes wait for a processor")
def test_program_that_waits_for_a_processor_is_stalled() -> None:
    with subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE, start_new_session=True) as crowd:
        try:
            assert crowd.stdout is not None
            crowd.stdout.readline()
            with run_watcher(crowd.pid) as watcher:
                lost = sum(stall.lost for stall in watcher.stalls)
                assert lost > 0.5 * TICKS * TICK
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)
