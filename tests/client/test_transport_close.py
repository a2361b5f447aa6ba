"""Closing and cancelling: no pending request delays a program. The servers here never answer."""

import asyncio
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from forewarn.client import AsyncScheduledEvents, Change, Closed, ScheduledEvents
from forewarn.client.effects import Failure, Request, Response
from forewarn.client.endpoint import parse_endpoint
from forewarn.client.transport import Exchange
from tests.client.faulty_server import (
    GUARD,
    FaultyServer,
    holds,
    holds_after,
    raw_response,
    responds,
    run_faulty_server,
)
from tests.client.scripted_flow import ID, document, event

HELD = responds(200, document(event()), ETag='"1"', Forewarn_Wait="60")
CALLS: dict[str, Callable[[ScheduledEvents], object]] = {
    "get": ScheduledEvents.get,
    "approve": lambda se: se.approve(ID),
    "name": lambda se: se.name,
}
ASYNC_CALLS: dict[str, Callable[[AsyncScheduledEvents], object]] = {
    "get": AsyncScheduledEvents.get,
    "approve": lambda se: se.approve(ID),
    "name": AsyncScheduledEvents.name,
}


class Caller(threading.Thread):
    """A thread that makes a call and keeps its outcome."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: object = "nothing yet"

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except Closed as error:
            self.outcome = type(error)

    def ended(self) -> object:
        self.join(GUARD)
        return self.outcome


def calling(call: Callable[[], object]) -> Caller:
    caller = Caller(call)
    caller.start()
    return caller


def threads_of_the_client() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("forewarn-")]


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Wait for the threads that the test started; ignore those of other tests."""
    before = set(threads_of_the_client())
    yield
    new = set(threads_of_the_client()) - before
    for thread in new:
        thread.join(GUARD)
    assert {thread for thread in new if thread.is_alive()} == set()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_closing_ends_a_call_in_another_thread(call: Callable[[ScheduledEvents], object]) -> None:
    with run_faulty_server(holds) as running, ScheduledEvents(running.url) as se:
        caller = calling(lambda: call(se))
        running.wait_for_requests()
        se.close()
        assert caller.ended() is Closed
        running.wait_for_hang_up()


def test_closing_ends_a_watch_in_a_long_poll() -> None:
    with run_faulty_server(HELD, holds) as running, ScheduledEvents(running.url) as se:
        caller = calling(lambda: [type(change).__name__ for change in se.watch()])
        running.wait_for_requests(2)
        se.close()
        assert caller.ended() == ["Appeared"]
        assert "wait=60" in running.targets[1]


def test_closing_ends_a_watch_that_sleeps() -> None:
    asleep = threading.Event()
    with run_faulty_server(*[responds(500, b"")] * 9) as running:
        se = ScheduledEvents(running.url, on_trouble=lambda *_: asleep.set(), chance=lambda: 1.0)
        caller = calling(lambda: list(se.watch()))
        assert asleep.wait(GUARD)
        se.close()
        assert caller.ended() == []


def test_closing_ends_all_running_calls() -> None:
    with run_faulty_server() as running, ScheduledEvents(running.url) as se:
        callers = [calling(lambda: list(se.watch())), calling(se.get), calling(lambda: list(se.watch(mine=True)))]
        running.wait_for_requests(3)
        se.close()
        assert [caller.ended() for caller in callers] == [[], Closed, []]


def test_closed_client_raises_closed() -> None:
    se = ScheduledEvents("127.0.0.1:9")
    se.close()
    se.close()
    for call in CALLS.values():
        with pytest.raises(Closed):
            call(se)
    assert list(se.watch()) == []
    with pytest.raises(Closed), se.interruptible():
        pytest.fail("it was entered")


def test_end_of_an_interruptible_block_closes_its_connection() -> None:
    before = threads_of_the_client()
    with run_faulty_server() as running, ScheduledEvents(running.url, name="web_0") as se:
        with se.interruptible() as stop:
            running.wait_for_requests()
        running.wait_for_hang_up()
        assert (stop.is_set(), threads_of_the_client()) == (False, before)
        assert se._driver._in_flight == set()


def test_closing_the_client_ends_its_interruptible_blocks() -> None:
    with run_faulty_server() as running, ScheduledEvents(running.url, name="web_0") as se, se.interruptible():
        running.wait_for_requests()
        se.close()
        running.wait_for_hang_up()


def test_response_received_before_closing_is_returned() -> None:
    with run_faulty_server(responds(200, document(event()))) as running, ScheduledEvents(running.url) as se:
        watch = se.watch()
        first = next(watch)
        se.close()
        assert (first.event.id, list(watch)) == (ID, [])


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


PROGRAMS = {
    "exit within a block": """
        with ScheduledEvents(url, name="a") as se, se.interruptible() as stop:
            input()
            sys.exit(7)
    """,
    "block that is never left": """
        entered = ScheduledEvents(url, name="a").interruptible()
        entered.__enter__()
        input()
        sys.exit(7)
    """,
    "watch in a daemon thread": """
        watch = ScheduledEvents(url).watch()
        threading.Thread(target=list, args=(watch,), daemon=True).start()
        input()
        sys.exit(7)
    """,
    "task that is not cancelled": """
        async def main():
            task = asyncio.create_task(AsyncScheduledEvents(url).get())
            await asyncio.to_thread(input)
        asyncio.run(main())
        sys.exit(7)
    """,
    "stopped event loop": """
        loop = asyncio.new_event_loop()
        task = loop.create_task(AsyncScheduledEvents(url).get())
        loop.call_later(0.5, loop.stop)
        loop.run_forever()
        input()
        os._exit(7) if task.done() else sys.exit(7)
    """,
    "interrupt": """
        def interrupt():
            input()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            ScheduledEvents(url).get()
        except KeyboardInterrupt:
            sys.exit(7)
    """,
}


@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_long_poll_does_not_delay_the_exit_of_a_program(program: str) -> None:
    imports = (
        "import asyncio, os, signal, sys, threading\n"
        "from forewarn.client import AsyncScheduledEvents, ScheduledEvents\n"
        "url = sys.argv[1]\n"
    )
    with run_faulty_server() as running:
        process = subprocess.Popen(
            [sys.executable, "-c", imports + textwrap.dedent(program), running.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            running.wait_for_requests()
            _, complaints = process.communicate(b"\n", timeout=GUARD)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 7, complaints.decode()


def cancelled_exchange(running: FaultyServer) -> Response | Failure:
    """Return the result of an exchange that is cancelled as soon as the server has its request."""
    exchange = Exchange(parse_endpoint(running.url), Request("GET", "/"), GUARD * 3)
    caller = calling(exchange.run)
    running.wait_for_requests()
    exchange.cancel()
    exchange.cancel()
    outcome = caller.ended()
    assert isinstance(outcome, Response | Failure)
    return outcome


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200", raw_response(200, b"x")[:-5], raw_response(200, b"x" * 99)[:-5]],
    ids=["nothing", "status-line", "head", "body"],
)
def test_exchange_can_be_cancelled_at_any_point(beginning: bytes) -> None:
    with run_faulty_server(holds_after(beginning)) as running:
        assert isinstance(cancelled_exchange(running), Failure)


def test_exchange_cancelled_before_it_starts_does_not_connect() -> None:
    with run_faulty_server() as running:
        exchange = Exchange(parse_endpoint(running.url), Request("GET", "/"), GUARD)
        exchange.cancel()
        assert isinstance(exchange.run(), Failure)
        assert running.received == []


def test_exchange_can_be_cancelled_while_connecting() -> None:
    """While the listener's backlog is full, a connection is neither accepted nor refused."""
    with ExitStack() as stack, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(listener.getsockname())
        exchange = Exchange(parse_endpoint(f"127.0.0.1:{listener.getsockname()[1]}"), Request("GET", "/"), GUARD)
        waiting = calling(exchange.run)
        waiting.join(0.2)
        assert waiting.is_alive()
        exchange.cancel()
        assert isinstance(waiting.ended(), Failure)


def test_interrupt_while_connecting_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(socket.socket, "connect", interrupt)
    exchange = Exchange(parse_endpoint("127.0.0.1:9"), Request("GET", "/"), GUARD)
    with pytest.raises(KeyboardInterrupt):
        exchange.run()
    assert exchange._socket is not None
    assert exchange._socket.fileno() == -1
