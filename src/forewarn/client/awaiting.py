"""The client for programs on asyncio: the same flows, with each request in a thread that ends when it is cancelled."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, closing, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from forewarn.client.blocking import chance
from forewarn.client.changes import Change
from forewarn.client.conversation import Conversation, Settings
from forewarn.client.document import Document, Event
from forewarn.client.endpoint import Endpoint, endpoint_of
from forewarn.client.errors import ClientError, Closed
from forewarn.client.interruption import Outlook
from forewarn.client.talk import Answer, Command, Failure, Flow, Give, Reply, Send, Sleep, T
from forewarn.client.transport import Exchange
from forewarn.client.trouble import OnTrouble, TroubleLog
from forewarn.clock import SystemClock


class AsyncInterruption(Outlook):
    """Like an `asyncio.Event` that the service sets. It stays set, even if the event is withdrawn."""

    def __init__(self, types: Collection[str], now: Callable[[], datetime]) -> None:
        super().__init__(types, now)
        self._announced = asyncio.Event()

    def is_set(self) -> bool:
        """Tell whether an interruption is announced."""
        return self._announced.is_set()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  # the twin of Interruption.wait
        """Wait until an interruption is announced, or so many seconds; tell whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._announced.wait()
        return self.is_set()

    async def follow(self, changes: AsyncIterable[Change]) -> None:
        """Take what the service says until there is no more."""
        async for change in changes:
            self._take(change)
            if self.event is not None:
                self._announced.set()


class AsyncScheduledEvents:
    """What is going to happen to this VM and its neighbours; `ScheduledEvents` for asyncio, with the same settings.

    Cancelling a call closes its connection at once. `aclose`, or the end of its `async with`, ends every call that is
    under way: `watch` just ends, everything else raises Closed. A client belongs to one event loop.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        name: str | None = None,
        timeout: float = Settings().timeout,
        first_timeout: float = Settings().first_timeout,
        interval: float = Settings().interval,
        wait: int = Settings().wait,
        retry_for: float | None = None,
        on_trouble: OnTrouble | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] | None = None,
        chance: Callable[[], float] = chance,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        where = endpoint_of(endpoint)
        settings = Settings(timeout, first_timeout, interval, wait, retry_for)
        self._conversation = Conversation(str(where), settings, name=name, monotonic=monotonic, chance=chance)
        self._line = _AsyncLine(where, on_trouble or TroubleLog(monotonic), sleep)
        self._now = now or SystemClock().now

    @property
    def endpoint(self) -> str:
        """The URL of the metadata service."""
        return self._conversation.endpoint

    @property
    def trouble(self) -> ClientError | None:
        """Why the last request brought nothing; None if it did."""
        return self._conversation.trouble

    async def name(self) -> str:
        """Return this VM's resource name, for which the service is asked the first time. Often not the host name."""
        return await self._line.run(self._conversation.name(None))

    async def get(self, *, retry_for: float | None = None) -> Document:
        """Return everything that is planned or under way; see `ScheduledEvents.get`."""
        return await self._line.run(self._conversation.document(retry_for))

    def watch(self, *, mine: bool = False, since: Document | None = None) -> AsyncIterator[Change]:
        """Give every change from now on, beginning with what is there; see `ScheduledEvents.watch`."""
        return self._line.changes(self._conversation.watch(mine=mine, since=since))

    async def approve(self, event: Event | str, *more: Event | str, retry_for: float | None = None) -> None:
        """Let events start before their time; see `ScheduledEvents.approve`."""
        await self._line.run(self._conversation.approve((event, *more), retry_for))

    @asynccontextmanager
    async def interruptible(self, *types: str) -> AsyncIterator[AsyncInterruption]:
        """Have a sign that is set when this VM is going to be interrupted; see `ScheduledEvents.interruptible`."""
        self._line.check()
        stop = AsyncInterruption(types, self._now)
        follower = asyncio.create_task(stop.follow(self.watch(mine=True)), name="forewarn-interruptible")
        follower.add_done_callback(_tell_of_failure)
        try:
            yield stop
        finally:
            follower.cancel()
            await asyncio.wait({follower})

    async def aclose(self) -> None:
        """End every call that is under way, and answer no more. Closing again does nothing."""
        self._line.hang_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _AsyncLine:
    """Carries flows out on the event loop, until somebody hangs up."""

    def __init__(
        self, endpoint: Endpoint, on_trouble: OnTrouble, sleep: Callable[[float], Awaitable[object]] | None
    ) -> None:
        self._endpoint, self._on_trouble = endpoint, on_trouble
        self._hung_up = asyncio.Event()
        self._sleep = sleep or self._nap
        self._under_way: set[Exchange] = set()

    async def run(self, flow: Flow[T]) -> T:
        """Carry a flow out to its end; raises Closed if somebody hangs up before."""
        reply: Reply = None
        with closing(flow):
            while True:
                try:
                    command = flow.send(reply)
                except StopIteration as end:
                    value: T = end.value
                    return value
                reply = await self._carry_out(command)

    async def changes(self, flow: Flow[None]) -> AsyncIterator[Change]:
        """Carry a flow out that has no end, and give what it gives, until somebody hangs up."""
        reply: Reply = None
        with closing(flow):
            while not self._hung_up.is_set():
                command = flow.send(reply)
                reply = None
                if isinstance(command, Give):
                    for change in command.changes:
                        yield change
                    continue
                try:
                    reply = await self._carry_out(command)
                except Closed:
                    return

    def hang_up(self) -> None:
        self._hung_up.set()
        for exchange in self._under_way:
            exchange.hang_up()

    def check(self) -> None:
        """Raise Closed if somebody has hung up."""
        if self._hung_up.is_set():
            raise Closed

    async def _carry_out(self, command: Command) -> Reply:
        self.check()
        match command:
            case Send(request, timeout):
                return await self._exchange(Exchange(self._endpoint, request, timeout))
            case Sleep(seconds, trouble):
                await self._pause(seconds, trouble)
                return None
            case Give():
                raise AssertionError("only a watch gives changes")

    async def _exchange(self, exchange: Exchange) -> Reply:
        self._under_way.add(exchange)
        try:
            reply = await _in_a_thread(exchange)
        finally:
            exchange.hang_up()
            self._under_way.discard(exchange)
        if self._hung_up.is_set() and not isinstance(reply, Answer):
            raise Closed
        return reply

    async def _pause(self, seconds: float, trouble: ClientError | None) -> None:
        if trouble is not None:
            self._on_trouble(trouble, seconds)
        await self._sleep(seconds)
        self.check()

    async def _nap(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hung_up.wait()


def _tell_of_failure(follower: "asyncio.Task[None]") -> None:
    """Say at once that nobody follows any more, as a thread would: it is a mistake, the user's in `on_trouble` say."""
    if not follower.cancelled() and (error := follower.exception()) is not None:
        what = "Nobody follows the events any more, so interruptible() will not be told"
        follower.get_loop().call_exception_handler({"message": what, "exception": error, "task": follower})


async def _in_a_thread(exchange: Exchange) -> Answer | Failure:
    """Run an exchange in a thread of its own: those of an executor would be awaited at the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer | Failure] = loop.create_future()

    def run() -> None:
        reply: Answer | Failure | BaseException
        try:
            reply = exchange.run()
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it, or would wait for ever
            reply = error
        # When nobody waits any more, the loop may even be closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, reply)

    threading.Thread(target=run, name="forewarn-exchange", daemon=True).start()
    return await future


def _settle(future: "asyncio.Future[Answer | Failure]", reply: Answer | Failure | BaseException) -> None:
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)
