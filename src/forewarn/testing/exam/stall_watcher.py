"""Stalls of the machine: times in which the exam or the handler could have run, but had no processor.

Every limit of the exam is in available seconds, which do not pass during a stall. So a busy machine makes an exam take
longer, but does not change its verdicts.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

TICK = 0.1
"""The seconds between two measurements."""

MIN_LOST = 0.02
"""A shorter delay in one tick is normal, and does not count."""

MAX_SHARE = 0.9
"""The largest part of a stall that does not count. So even a program that always waits for itself meets its limits."""

WHOLE = 1.0
"""All of a stall."""

ARRIVAL = 0.5
"""The last seconds of a pause, in which the exam may have noticed the program's next request too late."""

PROC = Path("/proc")


class Stall(msgspec.Struct, frozen=True):
    """A time by the monotonic clock, and how many of its seconds the exam and the program waited for a processor.

    `delay` is how many of them the program itself waited; a stall of the exam does not make its pauses longer.
    """

    begin: float
    end: float
    lost: float
    delay: float = 0.0


def available_seconds(stalls: Iterable[Stall], begin: float, end: float, *, share: float = MAX_SHARE) -> float:
    """Return the seconds between two times of the monotonic clock, without at most this share of each stall."""
    lost = 0.0
    for stall in stalls:
        overlap = min(end, stall.end) - max(begin, stall.begin)
        if overlap > 0:
            lost += overlap * min(share, stall.lost / (stall.end - stall.begin))
    return max(0.0, end - begin - lost)


def pause_seconds(stalls: Iterable[Stall], begin: float, end: float, *, share: float = MAX_SHARE) -> float:
    """Return the seconds that the program paused: without its own delays, and stalls in which its request arrived."""
    own = (
        stall if end - ARRIVAL <= stall.end else Stall(stall.begin, stall.end, stall.delay)
        for stall in stalls
        if stall.end > begin
    )
    return available_seconds(own, begin, end, share=share)


class StallWatcher:
    """Measures stalls in a thread, until the context ends.

    Its own thread wakes up late if this process gets no processor. On Linux the kernel also counts how long each thread
    of the handler was ready to run but had to wait. `on_tick` is called after each measurement.
    """

    def __init__(self, on_tick: Callable[[], None] = lambda: None) -> None:
        self._on_tick = on_tick
        self._lock = threading.Lock()
        self._stalls: list[Stall] = []
        self._began_at = self._ticked_at = time.monotonic()
        self._program: Callable[[], int] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forewarn-exam-stalls", daemon=True)

    def __enter__(self) -> Self:
        self._began_at = self._ticked_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def watch_program(self, pid: Callable[[], int]) -> None:
        """Measure the delays of the process with this pid and its descendants, too."""
        self._program = pid

    @property
    def stalls(self) -> Sequence[Stall]:
        """All stalls so far, in order, with the current one."""
        with self._lock:
            now = time.monotonic()
            late = now - self._ticked_at - TICK
            current = [] if late < MIN_LOST else [Stall(self._ticked_at, now, late)]
            return [*self._stalls, *current]

    def available(self, begin: float, end: float | None = None) -> float:
        """Return the available seconds since a time of the monotonic clock, or between two."""
        return available_seconds(self.stalls, begin, time.monotonic() if end is None else end)

    @property
    def elapsed(self) -> float:
        """The available seconds since the start."""
        return self.available(self._began_at)

    def _watch(self) -> None:
        waited: dict[int, float] = {}
        while not self._stopped.wait(TICK):
            before, waited = waited, _waiting_seconds(self._program)
            delay = sum(max(0.0, seconds - before.get(thread, 0.0)) for thread, seconds in waited.items())
            with self._lock:
                now = time.monotonic()
                took = now - self._ticked_at
                lost = min(took - TICK + delay, took)
                if lost > MIN_LOST:
                    self._stalls.append(Stall(self._ticked_at, now, lost, min(delay, lost)))
                self._ticked_at = now
            self._on_tick()


def _waiting_seconds(program: Callable[[], int] | None) -> dict[int, float]:
    """Return how long each thread of the program has waited for a processor; empty where the kernel does not say."""
    found: dict[int, float] = {}
    pids = [] if program is None else [program()]
    for pid in pids:
        with suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                with suppress(OSError, ValueError, IndexError):
                    found[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
                    pids += map(int, (thread / "children").read_text().split())
    return found
