"""Long work yields: it has one time slice in each iteration of the event loop, and other tasks run between."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from forewarn.fleet.event_loop import (
    GC_THRESHOLDS,
    FairShare,
    GcPause,
    clear_gradually,
    freeze_gc,
    iterate_gradually,
    pause_gc,
    start_without_gc,
)
from tests.fleet.fleets import Rounds, until


async def test_work_without_time_left_continues_in_the_next_iteration() -> None:
    turns, rounds = FairShare(time_slice=0), Rounds()
    seen: list[int] = []
    for _ in range(5):
        await turns.wait_turn()
        seen.append(rounds.number)
    assert len(set(seen)) == 5


async def test_work_with_time_left_continues_in_the_same_iteration() -> None:
    turns, rounds = FairShare(time_slice=3600), Rounds()
    seen: list[int] = []
    for _ in range(5):
        await turns.wait_turn()
        seen.append(rounds.number)
    assert len(set(seen)) == 1


async def test_many_tasks_share_one_time_slice_in_order() -> None:
    turns, rounds = FairShare(time_slice=0), Rounds()
    seen: list[tuple[int, int]] = []

    async def work(name: int) -> None:
        await turns.wait_turn()
        seen.append((rounds.number, name))

    await asyncio.gather(*(work(name) for name in range(20)))
    assert [name for _, name in seen] == list(range(20))
    assert len({number for number, _ in seen}) == 20


async def test_tasks_start_at_once_until_the_slice_is_used_up_and_then_in_order() -> None:
    turns, rounds = FairShare(max_items=4), Rounds()
    seen: list[tuple[int, int]] = []

    def start(name: int) -> None:
        seen.append((rounds.number, name))

    for name in range(10):
        turns.start(partial(start, name))
    assert seen == [(0, 0), (0, 1), (0, 2), (0, 3)]
    await until(lambda: len(seen) == 10)
    assert [name for _, name in seen] == list(range(10))
    assert list(Counter(number for number, _ in seen).values()) == [4, 4, 2]


async def test_started_task_waits_behind_tasks_that_wait_for_their_turn() -> None:
    turns = FairShare(max_items=1)
    seen: list[str] = []

    async def wait(name: str) -> None:
        await turns.wait_turn()
        seen.append(name)

    waiting = [asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))]
    await asyncio.sleep(0)
    turns.start(lambda: seen.append("started"))
    await asyncio.gather(*waiting)
    await until(lambda: len(seen) == 3)
    assert seen == ["first", "second", "started"]


async def test_slice_of_a_number_of_items_releases_as_many_waiting_tasks() -> None:
    assert await items_by_iteration(FairShare(max_items=4), [0.0] * 10) == [4, 4, 2]


async def test_as_many_waiting_tasks_continue_in_an_iteration_as_fit_into_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick, slow = [0.125] * 23, [2.0] * 8
    assert await items_by_iteration(FairShare(time_slice=1.0), quick + slow, monkeypatch) == [
        8,
        1,
        2,
        4,
        4,
        4,
        4,
        2,
        1,
        1,
    ]


async def items_by_iteration(
    turns: FairShare, durations: list[float], monkeypatch: pytest.MonkeyPatch | None = None
) -> list[int]:
    """Let a task per duration wait for its turn, and return how many had theirs in each iteration of the loop."""
    rounds, seen, now = Rounds(), Counter[int](), 0.0
    if monkeypatch is not None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def work(duration: float) -> None:
        nonlocal now
        await turns.wait_turn()
        now += duration
        seen[rounds.number] += 1

    await asyncio.gather(*map(work, durations))
    return [seen[number] for number in sorted(seen)]


async def test_cancelled_waiter_does_not_block_others() -> None:
    turns = FairShare(time_slice=0)
    waiting = [asyncio.create_task(turns.wait_turn()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    waiting[3].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in done] == [False, True, False, True, False]
    await turns.wait_turn()


async def test_other_tasks_run_while_a_list_is_iterated() -> None:
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    items = [item async for item in iterate_gradually(range(100), time_slice=0)]
    task.cancel()
    assert (items, rounds >= 99) == (list(range(100)), True)


async def test_list_is_cleared_in_slices() -> None:
    rounds = Rounds()
    pile = list(range(100))
    await clear_gradually(pile, time_slice=0)
    assert (pile, rounds.number >= 99) == ([], True)


def test_gc_is_enabled_again_after_a_pause_even_a_failed_one() -> None:
    with pytest.raises(ZeroDivisionError), pause_gc():
        _ = 1 / gc.isenabled()  # False: paused
    assert gc.isenabled()


def test_objects_of_the_start_are_not_scanned_again() -> None:
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        freeze_gc()
        assert gc.get_threshold() == GC_THRESHOLDS
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


async def test_service_starts_without_gc_and_its_objects_are_not_scanned_later() -> None:
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    is_enabled: list[bool] = []

    @asynccontextmanager
    async def service() -> AsyncIterator[str]:
        is_enabled.append(gc.isenabled())
        yield "running"
        is_enabled.append(gc.isenabled())

    try:
        async with start_without_gc(service()) as running:
            assert (running, gc.isenabled(), gc.get_threshold()) == ("running", True, GC_THRESHOLDS)
            assert gc.get_freeze_count() > frozen
        assert is_enabled == [False, True]
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_pause_does_not_enable_gc_that_was_disabled() -> None:
    with pause_gc():
        with pause_gc():
            pass
        assert not gc.isenabled()


async def test_burst_of_work_pauses_gc_until_it_ends() -> None:
    pause = GcPause()
    pause.begin()
    pause.begin()
    assert not gc.isenabled()
    pause.end()
    assert gc.isenabled()


async def test_burst_without_an_end_pauses_gc_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.event_loop.MAX_GC_PAUSE", 0.0)
    GcPause().begin()
    assert not gc.isenabled()
    await until(gc.isenabled)


async def test_burst_does_not_enable_gc_that_was_disabled() -> None:
    pause = GcPause()
    with pause_gc():
        pause.begin()
        pause.end()
        assert not gc.isenabled()
