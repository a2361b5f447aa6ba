"""Asyncio client: runs the same flows as the synchronous client, each request in its own thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, closing, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from forewarn.client.changes import Change
from forewarn.client.document import Document, Event
from forewarn.client.effects import Command, Failure, Flow, Log, Reply, Response, Send, Sleep, T, Yield
from forewarn.client.endpoint import Endpoint, resolve_endpoint
from forewarn.client.errors import ClientError, Closed
from forewarn.client.flow import ClientFlows, FlowOptions
from forewarn.client.interruption import InterruptionState
from forewarn.client.retry import OnTrouble, RetryLog, log_message
from forewarn.client.sync import random_fraction
from forewarn.client.transport import Exchange
from forewarn.clock import SystemClock


class AsyncInterruption(InterruptionState):
    """A flag like `asyncio.Event`, set when an event is going to interrupt this VM.

    It stays set, even if the event is withdrawn.
    """

    def __init__(self, types: Collection[str], now: Callable[[], datetime]) -> None:
        super().__init__(types, now)
        self._announced = asyncio.Event()

    def is_set(self) -> bool:
        """Return whether an interruption is announced."""
        return self._announced.is_set()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  # same signature as Interruption.wait
        """Wait until an interruption is announced, at most `timeout` seconds; return whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._announced.wait()
        return self.is_set()

    async def follow(self, changes: AsyncIterable[Change]) -> None:
        """Apply all changes until the iterator ends."""
        async for change in changes:
            self._apply(change)
            if self.event is not None:
                self._announced.set()


class AsyncScheduledEvents:
    """Asyncio client of the metadata endpoint; like `ScheduledEvents`, with the same parameters.

    Cancelling a call closes its connection immediately. `aclose`, or the end of the `async with` block, ends every
    running call: `watch` stops, all other calls raise Closed. A client belongs to one event loop.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        name: str | None = None,
        timeout: float = FlowOptions().timeout,
        first_timeout: float = FlowOptions().first_timeout,
        interval: float = FlowOptions().interval,
        wait: int = FlowOptions().wait,
        retry_for: float | None = None,
        on_trouble: OnTrouble | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] | None = None,
        chance: Callable[[], float] = random_fraction,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        url = resolve_endpoint(endpoint)
        settings = FlowOptions(timeout, first_timeout, interval, wait, retry_for)
        self._flows = ClientFlows(str(url), settings, name=name, monotonic=monotonic, chance=chance)
        self._driver = _AsyncDriver(url, on_trouble or RetryLog(monotonic), sleep)
        self._now = now or SystemClock().now

    @property
    def endpoint(self) -> str:
        """The URL of the metadata service."""
        return self._flows.endpoint

    @property
    def trouble(self) -> ClientError | None:
        """The error of the last request; None if it succeeded."""
        return self._flows.trouble

    async def name(self) -> str:
        """Return this VM's resource name, requested once and cached. It often differs from the host name."""
        return await self._driver.run(self._flows.name(None))

    async def get(self, *, retry_for: float | None = None) -> Document:
        """Return the current document; see `ScheduledEvents.get`."""
        return await self._driver.run(self._flows.document(retry_for))

    def watch(self, *, mine: bool = False, since: Document | None = None) -> AsyncIterator[Change]:
        """Yield every change, starting with the events that exist now; see `ScheduledEvents.watch`."""
        return self._driver.changes(self._flows.watch(mine=mine, since=since))

    async def approve(self, event: Event | str, *more: Event | str, retry_for: float | None = None) -> tuple[str, ...]:
        """Approve events, so that they may start early; see `ScheduledEvents.approve`."""
        return await self._driver.run(self._flows.approve((event, *more), retry_for))

    @asynccontextmanager
    async def interruptible(self, *types: str) -> AsyncIterator[AsyncInterruption]:
        """Yield a flag that is set when an event is going to interrupt this VM; see `ScheduledEvents.interruptible`."""
        self._driver.check()
        stop = AsyncInterruption(types, self._now)
        follower = asyncio.create_task(stop.follow(self.watch(mine=True)), name="forewarn-interruptible")
        follower.add_done_callback(_report_failure)
        try:
            yield stop
        finally:
            follower.cancel()
            await asyncio.wait({follower})

    async def aclose(self) -> None:
        """Close the client and end every running call. Idempotent."""
        self._driver.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _AsyncDriver:
    """Runs flows on the event loop, until it is cancelled."""

    def __init__(
        self, endpoint: Endpoint, on_trouble: OnTrouble, sleep: Callable[[float], Awaitable[object]] | None
    ) -> None:
        self._endpoint, self._on_trouble = endpoint, on_trouble
        self._cancelled = asyncio.Event()
        self._sleep = sleep or self._sleep_until_cancelled
        self._in_flight: set[Exchange] = set()

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end. Raises Closed if the driver is cancelled first."""
        reply: Reply = None
        with closing(flow):
            while True:
                try:
                    command = flow.send(reply)
                except StopIteration as end:
                    value: T = end.value
                    return value
                reply = await self._execute(command)

    async def changes(self, flow: Flow[None]) -> AsyncIterator[Change]:
        """Run an endless flow and yield its changes until the driver is cancelled."""
        reply: Reply = None
        with closing(flow):
            while not self._cancelled.is_set():
                command = flow.send(reply)
                reply = None
                if isinstance(command, Yield):
                    for change in command.changes:
                        yield change
                    continue
                try:
                    reply = await self._execute(command)
                except Closed:
                    return

    def cancel(self) -> None:
        self._cancelled.set()
        for exchange in self._in_flight:
            exchange.cancel()

    def check(self) -> None:
        """Raise Closed if the driver was cancelled."""
        if self._cancelled.is_set():
            raise Closed

    async def _execute(self, command: Command) -> Reply:
        self.check()
        match command:
            case Send(request, timeout):
                return await self._exchange(Exchange(self._endpoint, request, timeout))
            case Sleep(seconds, trouble):
                await self._pause(seconds, trouble)
                return None
            case Log(message):
                log_message(message)
                return None
            case Yield():
                raise AssertionError("only watch yields changes")

    async def _exchange(self, exchange: Exchange) -> Reply:
        self._in_flight.add(exchange)
        try:
            reply = await _run_in_thread(exchange)
        finally:
            exchange.cancel()
            self._in_flight.discard(exchange)
        if self._cancelled.is_set() and not isinstance(reply, Response):
            raise Closed
        return reply

    async def _pause(self, seconds: float, trouble: ClientError | None) -> None:
        if trouble is not None:
            self._on_trouble(trouble, seconds)
        await self._sleep(seconds)
        self.check()

    async def _sleep_until_cancelled(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()


def _report_failure(follower: "asyncio.Task[None]") -> None:
    """Report an exception in the follower, such as one raised by the user's `on_trouble`, as a thread would."""
    if not follower.cancelled() and (error := follower.exception()) is not None:
        what = "forewarn: internal error while watching events; interruptible() gets no more events"
        follower.get_loop().call_exception_handler({"message": what, "exception": error, "task": follower})


async def _run_in_thread(exchange: Exchange) -> Response | Failure:
    """Run an exchange in a new thread. Python would wait for the threads of an executor at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Response | Failure] = loop.create_future()

    def run() -> None:
        reply: Response | Failure | BaseException
        try:
            reply = exchange.run()
        except BaseException as error:  # noqa: BLE001  # otherwise the awaiting task would never end
            reply = error
        # If the call was cancelled, the loop may be closed already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_result, future, reply)

    threading.Thread(target=run, name="forewarn-exchange", daemon=True).start()
    return await future


def _set_result(future: "asyncio.Future[Response | Failure]", reply: Response | Failure | BaseException) -> None:
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)
