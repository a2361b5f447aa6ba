"""Closing and cancelling: no pending request delays a program. The servers here never answer."""

import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack, suppress

import pytest

from forewarn.client.effects import Failure, Request, Response
from forewarn.client.endpoint import parse_endpoint
from forewarn.client.transport import Exchange
from tests.client.callers import calling
from tests.client.faulty_server import GUARD, FaultyServer, holds_after, raw_response, run_faulty_server

pytestmark = pytest.mark.usefixtures("no_threads_left")


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
        threading.Thread(target=lambda: (input(), loop.call_soon_threadsafe(loop.stop))).start()
        loop.run_forever()
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
