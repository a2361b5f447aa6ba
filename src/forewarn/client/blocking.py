"""The client for programs with threads, or with one."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from forewarn.client.changes import Change
from forewarn.client.conversation import Conversation, Settings
from forewarn.client.document import Document, Event
from forewarn.client.endpoint import Endpoint, endpoint_of
from forewarn.client.errors import ClientError, Closed
from forewarn.client.interruption import Interruption
from forewarn.client.talk import Answer, Command, Flow, Give, Reply, Send, Sleep, T
from forewarn.client.transport import Exchange
from forewarn.client.trouble import OnTrouble, TroubleLog
from forewarn.clock import SystemClock

ENDING_WITHIN = 5.0
"""For how many seconds a background thread is awaited that was told to end."""


def chance() -> float:
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
        timeout: float = Settings().timeout,
        first_timeout: float = Settings().first_timeout,
        interval: float = Settings().interval,
        wait: int = Settings().wait,
        retry_for: float | None = None,
        on_trouble: OnTrouble | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        chance: Callable[[], float] = chance,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        where = endpoint_of(endpoint)
        settings = Settings(timeout, first_timeout, interval, wait, retry_for)
        self._conversation = Conversation(str(where), settings, name=name, monotonic=monotonic, chance=chance)
        self._line = _Line(where, on_trouble or TroubleLog(monotonic), sleep)
        self._now = now or SystemClock().now

    @property
    def endpoint(self) -> str:
        """The URL of the metadata service."""
        return self._conversation.endpoint

    @property
    def trouble(self) -> ClientError | None:
        """Why the last request brought nothing; None if it did."""
        return self._conversation.trouble

    @property
    def name(self) -> str:
        """This VM's resource name, for which the service is asked the first time. It is often not the host name."""
        return self._line.run(self._conversation.name(None))

    def get(self, *, retry_for: float | None = None) -> Document:
        """Return everything that is planned or under way, for this VM and for the others that it is grouped with."""
        return self._line.run(self._conversation.document(retry_for))

    def watch(self, *, mine: bool = False, since: Document | None = None) -> Iterator[Change]:
        """Give every change from now on, beginning with what is there; with `mine`, of the events that affect this VM.

        It goes on until the client is closed, whatever the service does. With `since`, a document of earlier, it begins
        with what has changed since then. An event that begins, or ceases, to name this VM Appeared, or is Gone, for
        those who want theirs alone.
        """
        return self._line.changes(self._conversation.watch(mine=mine, since=since))

    def approve(self, event: Event | str, *more: Event | str, retry_for: float | None = None) -> None:
        """Let events start before their time: this VM is prepared. Of several, all are approved or none.

        An event affects all VMs in its `resources`, and one approval counts for all of them. Approving again, or after
        the start, changes nothing.
        """
        self._line.run(self._conversation.approve((event, *more), retry_for))

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
        with self._line.branch() as line:
            changes = line.changes(self._conversation.watch(mine=True, since=None))
            follower = threading.Thread(target=stop.follow, args=(changes,), name="forewarn-interruptible", daemon=True)
            follower.start()
            try:
                yield stop
            finally:
                line.hang_up()
                follower.join(ENDING_WITHIN)

    def close(self) -> None:
        """End every call that is under way, in whichever thread, and answer no more. Closing again does nothing."""
        self._line.hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _HangsUp(Protocol):
    def hang_up(self) -> None: ...


class _Line:
    """Carries flows out in the thread of the caller, until somebody hangs up."""

    def __init__(self, endpoint: Endpoint, on_trouble: OnTrouble, sleep: Callable[[float], object] | None) -> None:
        self._endpoint, self._on_trouble, self._given_sleep = endpoint, on_trouble, sleep
        self._hung_up = threading.Event()
        self._sleep = sleep or self._hung_up.wait
        self._lock = threading.Lock()
        self._under_way: set[_HangsUp] = set()

    def run(self, flow: Flow[T]) -> T:
        """Carry a flow out to its end; raises Closed if somebody hangs up before."""
        reply: Reply = None
        with closing(flow):
            while True:
                try:
                    command = flow.send(reply)
                except StopIteration as end:
                    value: T = end.value
                    return value
                reply = self._carry_out(command)

    def changes(self, flow: Flow[None]) -> Iterator[Change]:
        """Carry a flow out that has no end, and give what it gives, until somebody hangs up."""
        reply: Reply = None
        with closing(flow):
            while not self._hung_up.is_set():
                command = flow.send(reply)
                reply = None
                if isinstance(command, Give):
                    yield from command.changes
                    continue
                try:
                    reply = self._carry_out(command)
                except Closed:
                    return

    @contextmanager
    def branch(self) -> Iterator["_Line"]:
        """Have another line for a while, which this one takes along when it hangs up."""
        branch = _Line(self._endpoint, self._on_trouble, self._given_sleep)
        self._begin(branch)
        try:
            yield branch
        finally:
            self._end(branch)

    def hang_up(self) -> None:
        with self._lock:
            self._hung_up.set()
            under_way = list(self._under_way)
        for one in under_way:
            one.hang_up()

    def _carry_out(self, command: Command) -> Reply:
        match command:
            case Send(request, timeout):
                return self._exchange(Exchange(self._endpoint, request, timeout))
            case Sleep(seconds, trouble):
                self._pause(seconds, trouble)
                return None
            case Give():
                raise AssertionError("only a watch gives changes")

    def _exchange(self, exchange: Exchange) -> Reply:
        self._begin(exchange)
        try:
            reply = exchange.run()
        finally:
            self._end(exchange)
        if self._hung_up.is_set() and not isinstance(reply, Answer):
            raise Closed
        return reply

    def _pause(self, seconds: float, trouble: ClientError | None) -> None:
        if trouble is not None:
            self._on_trouble(trouble, seconds)
        self._sleep(seconds)
        if self._hung_up.is_set():
            raise Closed

    def _begin(self, one: _HangsUp) -> None:
        with self._lock:
            if self._hung_up.is_set():
                raise Closed
            self._under_way.add(one)

    def _end(self, one: _HangsUp) -> None:
        with self._lock:
            self._under_way.discard(one)
