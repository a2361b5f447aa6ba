"""The loop monitor finds a turn that keeps the event loop busy, and names its function."""

import asyncio
import gc
import time

from bench.loop_monitor import LONG_TURN, LoopMonitor, Turns

BUSY_SECONDS = 5 * LONG_TURN


def compute(monitor: LoopMonitor) -> None:
    """Use the processor for a while, until the monitor has noticed it."""
    until = time.thread_time() + BUSY_SECONDS
    while time.thread_time() < until or not monitor._stack:
        pass


async def beats(count: int) -> None:
    """Let the monitor's timer fire."""
    for _ in range(count):
        await asyncio.sleep(LONG_TURN)


async def test_long_turn_is_measured_in_processor_time() -> None:
    monitor = LoopMonitor()
    await beats(2)
    monitor.reset()
    compute(monitor)
    await beats(1)
    turns = monitor.turns()
    assert turns.longest_processor_ms >= BUSY_SECONDS * 1e3
    assert turns.longest_wall_ms >= turns.longest_processor_ms * 0.99
    assert [turn.processor_ms for turn in turns.long_turns] == [turns.longest_processor_ms]
    assert turns.long_turns[0].stack.startswith("compute (test_loop_monitor.py:")


async def test_long_turn_has_the_time_of_garbage_collection() -> None:
    monitor = LoopMonitor()
    await beats(2)
    monitor.reset()
    began = time.thread_time()
    gc.collect()
    collected_ms = (time.thread_time() - began) * 1e3
    compute(monitor)
    await beats(1)
    (turn,) = monitor.turns().long_turns
    assert 0 < turn.gc_ms <= collected_ms


async def test_reset_forgets_the_turns_so_far() -> None:
    monitor = LoopMonitor()
    compute(monitor)
    await beats(1)
    assert monitor.turns().long_turns
    monitor.reset()
    assert monitor.turns() == Turns(longest_processor_ms=0.0, longest_wall_ms=0.0, long_turns=[])
