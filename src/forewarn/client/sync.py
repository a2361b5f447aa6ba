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
from forewarn.client.effects import Command, Flow, Reply, Response, Send, Sleep, T, Yield
from forewarn.client.endpoint import Endpoint, resolve_endpoint
from forewarn.client.errors import ClientError, Closed
from forewarn.client.flow import ClientFlows, FlowOptions
from forewarn.client.interruption import Interruption
from forewarn.client.retry import OnTrouble, RetryLog
from forewarn.client.transport import Exchange
from forewarn.clock import SystemClock

JOIN_TIMEOUT = 5.0
"""For how many seconds a background thread is awaited that was told to end."""


def random_fraction() -> float:
    """Draw a number from 0 to 1."""
    return int.from_bytes(os.urandom(4)) / 2**32


class ScheduledEvents:
    """What is going to happen to this VM and its neighbours.

    `endpoint` is the metadata service: by default FOREWARN_ENDPOINT, or else 169.254.169.254. `name` is this VM's
    resource name, where the service is not to be asked for it. All else has good defaults, in seconds:

    - `timeout`, 10: how long an answer may take; `first_timeout`, 130: how long the first one may, and the first after
      a day without one
    - `interval`, 1: how often `watch` asks, unless the service offers to hold its answer; `wait`, 60: for how long it
      may do so, at most
    - `retry_for`: for how long `get`, `approve` and `name` ask again after what may pass, then they raise it. By
      default 30, or 70 while the service says that it is gone for a moment (410). With 0 they ask once
    - `on_trouble`: is called with the error and the pause each time before it is tried again; by default a warning is
      logged by "forewarn.client", but the same one at most every ten minutes

    `monotonic`, `sleep`, `chance` and `now` are for tests.

    One client may be used by several threads at the same time. `close`, or the end of its `with`, ends whatever any of
    them waits for: `watch` just ends, everything else raises Closed. Every error is a ClientError.
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
        """Why the last request brought nothing; None if it did."""
        return self._flows.trouble

    @property
    def name(self) -> str:
        """This VM's resource name, for which the service is asked the first time. It is often not the host name."""
        return self._driver.run(self._flows.name(None))

    def get(self, *, retry_for: float | None = None) -> Document:
        """Return everything that is planned or under way, for this VM and for the others that it is grouped with."""
        return self._driver.run(self._flows.document(retry_for))

    def watch(self, *, mine: bool = False, since: Document | None = None) -> Iterator[Change]:
        """Give every change from now on, beginning with what is there; with `mine`, of the events that affect this VM.

        It goes on until the client is closed, whatever the service does. With `since`, a document of earlier, it begins
        with what has changed since then. An event that begins, or ceases, to name this VM Appeared, or is Gone, for
        those who want theirs alone.
        """
        return self._driver.changes(self._flows.watch(mine=mine, since=since))

    def approve(self, event: Event | str, *more: Event | str, retry_for: float | None = None) -> None:
        """Let events start before their time: this VM is prepared. Of several, all are approved or none.

        An event affects all VMs in its `resources`, and one approval counts for all of them. Approving again, or after
        the start, changes nothing.
        """
        self._driver.run(self._flows.approve((event, *more), retry_for))

    @contextmanager
    def interruptible(self, *types: str) -> Iterator[Interruption]:
        """Have a sign that is set when this VM is going to be interrupted: by any event, or by those of some types.

        with se.interruptible() as stop:
            while not stop.is_set():
                work()
            clean_up(stop.time_left())
            if stop.event is not None:
                se.approve(stop.event)
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
        """End every call that is under way, in whichever thread, and answer no more. Closing again does nothing."""
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
    """Runs flows in the thread of the caller, until it is cancelled."""

    def __init__(self, endpoint: Endpoint, on_trouble: OnTrouble, sleep: Callable[[float], object] | None) -> None:
        self._endpoint, self._on_trouble, self._given_sleep = endpoint, on_trouble, sleep
        self._cancelled = threading.Event()
        self._sleep = sleep or self._cancelled.wait
        self._lock = threading.Lock()
        self._in_flight: set[_Cancellable] = set()

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end; raises Closed if it is cancelled before."""
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
        """Run an endless flow, and yield what it yields, until it is cancelled."""
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
        """Create another driver for a while; cancelling this one cancels it too."""
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
            case Yield():
                raise AssertionError("only a watch gives changes")

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
