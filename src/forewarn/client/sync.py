"""Synchronous, thread-safe client."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from forewarn.client.changes import Change
from forewarn.client.document import Document, Event
from forewarn.client.effects import Command, Flow, Log, Reply, Response, Send, Sleep, T, Yield
from forewarn.client.endpoint import Endpoint, resolve_endpoint
from forewarn.client.errors import ClientError, Closed
from forewarn.client.flow import ClientFlows, FlowOptions
from forewarn.client.interruption import Interruption
from forewarn.client.retry import OnTrouble, RetryLog, log_message
from forewarn.client.transport import Exchange
from forewarn.clock import SystemClock

JOIN_TIMEOUT = 5.0
"""How many seconds to wait for a cancelled background thread."""


def random_fraction() -> float:
    """Return a random number from 0 to 1."""
    return int.from_bytes(os.urandom(4)) / 2**32


class ScheduledEvents:
    """Synchronous client of the metadata endpoint.

    `endpoint` is the URL of the metadata service; default: FOREWARN_ENDPOINT, else 169.254.169.254. `name` is this VM's
    resource name; by default the client requests it. All other parameters have good defaults, in seconds:

    - `timeout`, 10: how long a response may take; `first_timeout`, 130: the same for the first response, and for the
      first one after a day without requests
    - `interval`, 1: how often `watch` polls, unless the service offers long polls; `wait`, 60: the longest long poll
    - `retry_for`: for how long `get`, `approve` and `name` retry after a transient error before they raise it.
      Default: 30, or 70 while the service answers 410 (update in progress). 0 means no retries
    - `on_trouble`: called with the error and the pause before each retry. Default: log a warning as "forewarn.client",
      the same one at most every ten minutes

    `monotonic`, `sleep`, `chance` and `now` are for tests.

    A client is thread-safe. `close`, or the end of the `with` block, ends the running calls of all threads: `watch`
    stops, all other calls raise Closed. Every error is a ClientError.
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
        sleep: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random_fraction,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        url = resolve_endpoint(endpoint)
        settings = FlowOptions(timeout, first_timeout, interval, wait, retry_for)
        self._flows = ClientFlows(str(url), settings, name=name, monotonic=monotonic, chance=chance)
        self._driver = _SyncDriver(url, on_trouble or RetryLog(monotonic), sleep)
        self._now = now or SystemClock().now

    @property
    def endpoint(self) -> str:
        """The URL of the metadata service."""
        return self._flows.endpoint

    @property
    def trouble(self) -> ClientError | None:
        """The error of the last request; None if it succeeded."""
        return self._flows.trouble

    @property
    def name(self) -> str:
        """This VM's resource name, requested once and cached. It often differs from the host name."""
        return self._driver.run(self._flows.name(None))

    def get(self, *, retry_for: float | None = None) -> Document:
        """Return the current document: the events of this VM and of all other VMs in its scope."""
        return self._driver.run(self._flows.document(retry_for))

    def watch(self, *, mine: bool = False, since: Document | None = None) -> Iterator[Change]:
        """Yield every change, starting with the events that exist now. With `mine`, only events that affect this VM.

        It continues until the client is closed, and retries after every error. With `since`, an earlier document, it
        starts with the changes since then. With `mine`, an event that is changed to name this VM is reported as
        Appeared, and one that is changed to name it no longer as Gone.
        """
        return self._driver.changes(self._flows.watch(mine=mine, since=since))

    def approve(self, event: Event | str, *more: Event | str, retry_for: float | None = None) -> tuple[str, ...]:
        """Approve events, so that they may start early. Either all of them are approved or none.

        An event affects all VMs in its `resources`, and one approval counts for all of them. Approving an event again
        has no effect. Events that are Started, as given or in the last document, are not sent: they need no approval.
        The client logs this as "forewarn.client", and returns the ids of the others.
        """
        return self._driver.run(self._flows.approve((event, *more), retry_for))

    @contextmanager
    def interruptible(self, *types: str) -> Iterator[Interruption]:
        """Yield a flag that is set when an event is going to interrupt this VM: any event, or one of the given types.

        with se.interruptible() as stop:
            while not stop.is_set():
                work()
            clean_up(stop.time_left())
            for change in se.watch(mine=True):
                if isinstance(change, Appeared):
                    se.approve(change.event)
                elif isinstance(change, Gone):
                    break
        """
        stop = Interruption(types, self._now)
        with self._driver.child() as driver:
            changes = driver.changes(self._flows.watch(mine=True, since=None))
            follower = threading.Thread(target=stop.follow, args=(changes,), name="forewarn-interruptible", daemon=True)
            follower.start()
            try:
                yield stop
            finally:
                driver.cancel()
                follower.join(JOIN_TIMEOUT)

    def close(self) -> None:
        """Close the client and end the running calls of all threads. Idempotent."""
        self._driver.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


class _SyncDriver:
    """Runs flows in the caller's thread until it is cancelled."""

    def __init__(self, endpoint: Endpoint, on_trouble: OnTrouble, sleep: Callable[[float], object] | None) -> None:
        self._endpoint, self._on_trouble, self._given_sleep = endpoint, on_trouble, sleep
        self._cancelled = threading.Event()
        self._sleep = sleep or self._cancelled.wait
        self._lock = threading.Lock()
        self._in_flight: set[_Cancellable] = set()

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end. Raises Closed if the driver is cancelled first."""
        reply: Reply = None
        with closing(flow):
            while True:
                try:
                    command = flow.send(reply)
                except StopIteration as end:
                    value: T = end.value
                    return value
                reply = self._execute(command)

    def changes(self, flow: Flow[None]) -> Iterator[Change]:
        """Run an endless flow and yield its changes until the driver is cancelled."""
        reply: Reply = None
        with closing(flow):
            while not self._cancelled.is_set():
                command = flow.send(reply)
                reply = None
                if isinstance(command, Yield):
                    yield from command.changes
                    continue
                try:
                    reply = self._execute(command)
                except Closed:
                    return

    @contextmanager
    def child(self) -> Iterator["_SyncDriver"]:
        """Create a child driver, which is cancelled together with this one."""
        driver = _SyncDriver(self._endpoint, self._on_trouble, self._given_sleep)
        self._register(driver)
        try:
            yield driver
        finally:
            self._unregister(driver)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
            in_flight = list(self._in_flight)
        for one in in_flight:
            one.cancel()

    def _execute(self, command: Command) -> Reply:
        match command:
            case Send(request, timeout):
                return self._exchange(Exchange(self._endpoint, request, timeout))
            case Sleep(seconds, trouble):
                self._pause(seconds, trouble)
                return None
            case Log(message):
                if self._cancelled.is_set():
                    raise Closed
                log_message(message)
                return None
            case Yield():
                raise AssertionError("only watch yields changes")

    def _exchange(self, exchange: Exchange) -> Reply:
        self._register(exchange)
        try:
            reply = exchange.run()
        finally:
            self._unregister(exchange)
        if self._cancelled.is_set() and not isinstance(reply, Response):
            raise Closed
        return reply

    def _pause(self, seconds: float, trouble: ClientError | None) -> None:
        if trouble is not None:
            self._on_trouble(trouble, seconds)
        self._sleep(seconds)
        if self._cancelled.is_set():
            raise Closed

    def _register(self, one: _Cancellable) -> None:
        with self._lock:
            if self._cancelled.is_set():
                raise Closed
            self._in_flight.add(one)

    def _unregister(self, one: _Cancellable) -> None:
        with self._lock:
            self._in_flight.discard(one)
