"""Programs that use a client, one with threads and one on asyncio, so that both can run the same test.

Their clients never really sleep, and their jitter is constant.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from queue import Queue
from typing import Any, Protocol, TypeVar

from forewarn.client import AsyncScheduledEvents, Change, ClientError, Document, Event, ScheduledEvents
from tests.client.faulty_server import GUARD

T = TypeVar("T")


class User(Protocol):
    """Uses a client for one call, and records its pauses and errors."""

    pauses: list[float]
    troubles: list[ClientError]
    pace: float

    def get(self, url: str, **settings: Any) -> Document: ...

    def name(self, url: str, **settings: Any) -> str: ...

    def approve(self, url: str, *events: Event | str, **settings: Any) -> tuple[str, ...]: ...

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        """Watch until `count` changes have arrived."""
        ...

    def changes_until(self, url: str, id_: str) -> list[Change]:
        """Watch until a change of the event with this id."""
        ...

    def background_watch(
        self, url: str, *, mine: bool = False, **settings: Any
    ) -> AbstractContextManager["BackgroundWatch"]:
        """Watch in another thread until the block ends."""
        ...


class BackgroundWatch:
    """The changes of a watch in another thread."""

    def __init__(self) -> None:
        self._told: Queue[Change] = Queue()
        self.put = self._told.put

    def next(self) -> Change:
        """Wait for the next change."""
        return self._told.get(timeout=GUARD)

    @property
    def is_silent(self) -> bool:
        """Whether all changes were taken."""
        return self._told.empty()


class UserBase:
    """Records the pauses and errors of a user."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = 0.0
        """How many seconds each pause really takes; above 0 where the client would poll in a busy loop."""
        self.pauses: list[float] = []
        self.troubles: list[ClientError] = []

    def sleep(self, seconds: float) -> None:
        self._note(seconds)
        time.sleep(self.pace)

    async def asleep(self, seconds: float) -> None:
        self._note(seconds)
        await asyncio.sleep(self.pace)

    def _note(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "monotonic": lambda: self.now,
            "chance": lambda: 1.0,
            "on_trouble": lambda error, _: self.troubles.append(error),
            # On a machine busy with other tests, a response may take some time.
            "timeout": GUARD,
        } | more


class SyncUser(UserBase):
    """A program with threads."""

    def get(self, url: str, **settings: Any) -> Document:
        return self._use(url, settings, ScheduledEvents.get)

    def name(self, url: str, **settings: Any) -> str:
        return self._use(url, settings, lambda se: se.name)

    def approve(self, url: str, *events: Event | str, **settings: Any) -> tuple[str, ...]:
        return self._use(url, settings, lambda se: se.approve(*events))

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        return self._use(url, settings, lambda se: list(islice(se.watch(mine=mine), count)))

    def changes_until(self, url: str, id_: str) -> list[Change]:
        def take(se: ScheduledEvents) -> list[Change]:
            told: list[Change] = []
            for change in se.watch():
                told.append(change)
                if change.event.id == id_:
                    break
            return told

        return self._use(url, {}, take)

    @contextmanager
    def background_watch(self, url: str, *, mine: bool = False, **settings: Any) -> Iterator[BackgroundWatch]:
        following = BackgroundWatch()
        with ScheduledEvents(url, **self.settings(sleep=self.sleep, **settings)) as se:

            def follow() -> None:
                for change in se.watch(mine=mine):
                    following.put(change)

            thread = threading.Thread(target=follow)
            thread.start()
            try:
                yield following
            finally:
                se.close()
                thread.join(GUARD)

    def _use(self, url: str, settings: dict[str, Any], call: Callable[[ScheduledEvents], T]) -> T:
        with ScheduledEvents(url, **self.settings(sleep=self.sleep, **settings)) as se:
            return call(se)


class AsyncUser(UserBase):
    """A program on asyncio."""

    def get(self, url: str, **settings: Any) -> Document:
        return self._use(url, settings, AsyncScheduledEvents.get)

    def name(self, url: str, **settings: Any) -> str:
        return self._use(url, settings, AsyncScheduledEvents.name)

    def approve(self, url: str, *events: Event | str, **settings: Any) -> tuple[str, ...]:
        return self._use(url, settings, lambda se: se.approve(*events))

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        async def take(se: AsyncScheduledEvents) -> list[Change]:
            watch = se.watch(mine=mine)
            return [await anext(watch) for _ in range(count)]

        return self._use(url, settings, take)

    def changes_until(self, url: str, id_: str) -> list[Change]:
        async def take(se: AsyncScheduledEvents) -> list[Change]:
            told: list[Change] = []
            async for change in se.watch():
                told.append(change)
                if change.event.id == id_:
                    break
            return told

        return self._use(url, {}, take)

    @contextmanager
    def background_watch(self, url: str, *, mine: bool = False, **settings: Any) -> Iterator[BackgroundWatch]:
        following, ending = BackgroundWatch(), Queue[Callable[[], object]]()

        async def main() -> None:
            loop, over = asyncio.get_running_loop(), asyncio.Event()
            ending.put(lambda: loop.call_soon_threadsafe(over.set))
            async with AsyncScheduledEvents(url, **self.settings(sleep=self.asleep, **settings)) as se:
                follower = asyncio.create_task(follow(se))
                await over.wait()
                follower.cancel()
                await asyncio.wait({follower})

        async def follow(se: AsyncScheduledEvents) -> None:
            async for change in se.watch(mine=mine):
                following.put(change)

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        try:
            yield following
        finally:
            ending.get(timeout=GUARD)()
            thread.join(GUARD)

    def _use(self, url: str, settings: dict[str, Any], call: Callable[[AsyncScheduledEvents], Awaitable[T]]) -> T:
        async def main() -> T:
            async with AsyncScheduledEvents(url, **self.settings(sleep=self.asleep, **settings)) as se:
                return await call(se)

        return asyncio.run(main())
