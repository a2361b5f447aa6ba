"""The asyncio client: `interruptible`, cancellation and close."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.client import AsyncScheduledEvents, Change, Closed
from tests.client.faulty_server import GUARD, HELD, INSTANCE, holds, responds, run_faulty_server
from tests.client.scripted_flow import ID, OWN

pytestmark = pytest.mark.usefixtures("no_threads_left")

NOW = datetime(2016, 9, 19, 18, 0, tzinfo=UTC)
ASYNC_CALLS: dict[str, Callable[[AsyncScheduledEvents], object]] = {
    "get": AsyncScheduledEvents.get,
    "approve": lambda se: se.approve(ID),
    "name": AsyncScheduledEvents.name,
}


async def no_sleep(_: float) -> None:
    pass


async def test_async_program_is_interrupted_by_its_own_event() -> None:
    with run_faulty_server(INSTANCE, responds(500, b""), responds(200, OWN)) as running:
        async with (
            AsyncScheduledEvents(running.url, sleep=no_sleep, now=lambda: NOW, on_trouble=lambda *_: None) as se,
            se.interruptible() as stop,
        ):
            assert await stop.wait(GUARD)
            assert stop.event is not None
            assert (stop.event.id, stop.time_left()) == (ID, timedelta(minutes=29, seconds=47))
            assert stop.is_set()


async def test_async_wait_times_out() -> None:
    with run_faulty_server() as running:
        async with AsyncScheduledEvents(running.url, name="a") as se, se.interruptible() as stop:
            assert await stop.wait(0.01) is False
            assert (stop.is_set(), stop.event, stop.time_left()) == (False, None, None)


async def test_exception_in_the_background_task_is_reported() -> None:
    """An exception in a thread is reported by Python itself."""
    told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.set_result(context))
    mistake = LookupError("a mistake of the user's")

    def fail(*_: object) -> None:
        raise mistake

    with run_faulty_server(responds(500, b"")) as running:
        async with AsyncScheduledEvents(running.url, name="a", on_trouble=fail) as se, se.interruptible() as stop:
            context = await told
            assert (context["exception"], stop.is_set()) == (mistake, False)


@pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS)
async def test_cancelling_closes_the_connection(call: Callable[[AsyncScheduledEvents], object]) -> None:
    with run_faulty_server(holds) as running:
        async with AsyncScheduledEvents(running.url) as se:
            task = asyncio.ensure_future(call(se))  # type: ignore[call-overload]  # each call gives a coroutine
            await asyncio.to_thread(running.wait_for_requests)
            task.cancel()
            await asyncio.to_thread(running.wait_for_hang_up)
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_cancelling_a_watch_closes_its_connection() -> None:
    seen: list[Change] = []

    async def follow(se: AsyncScheduledEvents) -> None:
        watch = se.watch()
        seen.append(await anext(watch))
        seen.append(await anext(watch))

    with run_faulty_server(HELD, holds) as running:
        async with AsyncScheduledEvents(running.url) as se:
            task = asyncio.create_task(follow(se))
            await asyncio.to_thread(running.wait_for_requests, 2)
            task.cancel()
            await asyncio.to_thread(running.wait_for_hang_up)
    assert [change.event.id for change in seen] == [ID]


async def test_asyncio_timeout_ends_a_call() -> None:
    with run_faulty_server(holds) as running:
        async with AsyncScheduledEvents(running.url) as se:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await se.get()


@pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS)
async def test_closing_ends_a_call_of_another_task(call: Callable[[AsyncScheduledEvents], object]) -> None:
    with run_faulty_server(holds) as running:
        se = AsyncScheduledEvents(running.url)
        task = asyncio.ensure_future(call(se))  # type: ignore[call-overload]  # each call gives a coroutine
        await asyncio.to_thread(running.wait_for_requests)
        await se.aclose()
        with pytest.raises(Closed):
            await task
        await asyncio.to_thread(running.wait_for_hang_up)


async def test_closing_ends_a_watch_of_another_task() -> None:
    async def follow(se: AsyncScheduledEvents) -> list[str]:
        return [type(change).__name__ async for change in se.watch()]

    with run_faulty_server(HELD, holds) as running:
        se = AsyncScheduledEvents(running.url)
        task = asyncio.create_task(follow(se))
        await asyncio.to_thread(running.wait_for_requests, 2)
        await se.aclose()
        assert await task == ["Appeared"]


async def test_closing_ends_an_async_watch_that_sleeps() -> None:
    asleep = asyncio.Event()

    async def follow(se: AsyncScheduledEvents) -> list[Change]:
        return [change async for change in se.watch()]

    with run_faulty_server(*[responds(500, b"")] * 9) as running:
        se = AsyncScheduledEvents(running.url, on_trouble=lambda *_: asleep.set(), chance=lambda: 1.0)
        task = asyncio.create_task(follow(se))
        await asleep.wait()
        await se.aclose()
        assert await task == []


async def test_closed_async_client_raises_closed() -> None:
    se = AsyncScheduledEvents("127.0.0.1:9")
    await se.aclose()
    await se.aclose()
    for call in ASYNC_CALLS.values():
        with pytest.raises(Closed):
            await call(se)  # type: ignore[misc]  # each call gives a coroutine
    assert [change async for change in se.watch()] == []
    with pytest.raises(Closed):
        async with se.interruptible():
            pytest.fail("it was entered")


async def test_end_of_an_async_interruptible_block_closes_its_connection() -> None:
    with run_faulty_server() as running:
        async with AsyncScheduledEvents(running.url, name="web_0") as se:
            async with se.interruptible() as stop:
                await asyncio.to_thread(running.wait_for_requests)
            await asyncio.to_thread(running.wait_for_hang_up)
            assert not stop.is_set()
