"""Loop monitor: finds turns of the event loop that keep all other tasks waiting, and where they spend their time.

A timer of the loop fires every two milliseconds. If it is late, a thread notes the stack of the loop's thread. A turn
is judged by its processor time: on a busy machine the kernel may interrupt it for longer than the turn itself takes.
"""

import asyncio
import gc
import sys
import threading
import time
from types import FrameType
from typing import Literal

import msgspec

BEAT = 0.002
"""Seconds between two beats of the timer."""

LONG_TURN = 0.010
"""A turn that takes longer is logged."""

LOOK_INTERVAL = 0.004
"""Seconds between two looks of the thread; shorter than a long turn, so that it sees each of them."""

STACK_DEPTH = 6


class LongTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the loop of more than LONG_TURN, in milliseconds, and the innermost frames seen in it.

    `gc_ms` is the part of its processor time in which the loop's thread collected garbage.
    """

    processor_ms: float
    wall_ms: float
    gc_ms: float
    stack: str


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """The longest turn by processor time and by wall time, and all long ones by processor time."""

    longest_processor_ms: float
    longest_wall_ms: float
    long_turns: list[LongTurn]


class LoopMonitor:
    """Watches the running loop until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._stack = ""
        self._gc_began = 0.0
        gc.callbacks.append(self._note_gc)
        self.reset()
        self._loop.call_later(BEAT, self._beat)
        threading.Thread(target=self._look, daemon=True, name="loop monitor").start()

    def reset(self) -> None:
        """Forget all turns, and start to count."""
        self._longest_processor = self._longest_wall = 0.0
        self._long_turns: list[LongTurn] = []
        self._beat_at, self._worked, self._collected = time.monotonic(), time.thread_time(), 0.0

    def turns(self) -> Turns:
        """Return the turns since the last reset."""
        return Turns(
            longest_processor_ms=self._longest_processor * 1e3,
            longest_wall_ms=self._longest_wall * 1e3,
            long_turns=self._long_turns,
        )

    def _beat(self) -> None:
        now, worked = time.monotonic(), time.thread_time()
        wall, processor = now - self._beat_at, worked - self._worked
        self._longest_wall = max(self._longest_wall, wall)
        self._longest_processor = max(self._longest_processor, processor)
        if processor > LONG_TURN:
            turn = LongTurn(
                processor_ms=processor * 1e3, wall_ms=wall * 1e3, gc_ms=self._collected * 1e3, stack=self._stack
            )
            self._long_turns.append(turn)
        self._beat_at, self._worked, self._collected, self._stack = now, worked, 0.0, ""
        self._loop.call_later(BEAT, self._beat)

    def _note_gc(self, phase: Literal["start", "stop"], _info: dict[str, int]) -> None:
        """Add up the collections of the loop's thread; those of other threads hold it up, but are not its work."""
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._gc_began = time.thread_time()
        else:
            self._collected += time.thread_time() - self._gc_began

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_INTERVAL)
            if time.monotonic() - self._beat_at > LONG_TURN and not self._stack:
                self._stack = _format_stack(sys._current_frames().get(self._thread_id))  # noqa: SLF001 - documented


def _format_stack(frame: FrameType | None) -> str:
    """Return the innermost frames, the innermost first."""
    parts: list[str] = []
    while frame is not None and len(parts) < STACK_DEPTH:
        code = frame.f_code
        parts.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(parts)
