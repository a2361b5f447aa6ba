"""Programs that use a client, one with threads and one on asyncio, so that the same test can be done by either.

Their clients never really sleep, and chance is always the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Protocol, TypeVar

from forewarn.client import AsyncScheduledEvents, Change, ClientError, Document, ScheduledEvents

T = TypeVar("T")


class User(Protocol):
    """Uses a client for one call, and remembers how often it slept and why."""

    pauses: list[float]
    troubles: list[ClientError]

    def get(self, url: str, **settings: Any) -> Document: ...

    def name(self, url: str, **settings: Any) -> str: ...

    def approve(self, url: str, *ids: str, **settings: Any) -> None: ...

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        """Watch until so many changes have come."""
        ...


class Memory:
    """What users remember."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.troubles: list[ClientError] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "monotonic": lambda: self.now,
            "chance": lambda: 1.0,
            "on_trouble": lambda error, _: self.troubles.append(error),
        } | more


class BlockingUser(Memory):
    """A program with threads."""

    def get(self, url: str, **settings: Any) -> Document:
        return self._use(url, settings, ScheduledEvents.get)

    def name(self, url: str, **settings: Any) -> str:
        return self._use(url, settings, lambda se: se.name)

    def approve(self, url: str, *ids: str, **settings: Any) -> None:
        self._use(url, settings, lambda se: se.approve(*ids))

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        return self._use(url, settings, lambda se: list(islice(se.watch(mine=mine), count)))

    def _use(self, url: str, settings: dict[str, Any], call: Callable[[ScheduledEvents], T]) -> T:
        with ScheduledEvents(url, **self.settings(sleep=self.sleep, **settings)) as se:
            return call(se)


class AsyncUser(Memory):
    """A program on asyncio."""

    def get(self, url: str, **settings: Any) -> Document:
        return self._use(url, settings, AsyncScheduledEvents.get)

    def name(self, url: str, **settings: Any) -> str:
        return self._use(url, settings, AsyncScheduledEvents.name)

    def approve(self, url: str, *ids: str, **settings: Any) -> None:
        self._use(url, settings, lambda se: se.approve(*ids))

    def changes(self, url: str, count: int, *, mine: bool = False, **settings: Any) -> list[Change]:
        async def take(se: AsyncScheduledEvents) -> list[Change]:
            watch = se.watch(mine=mine)
            return [await anext(watch) for _ in range(count)]

        return self._use(url, settings, take)

    def _use(self, url: str, settings: dict[str, Any], call: Callable[[AsyncScheduledEvents], Awaitable[T]]) -> T:
        async def main() -> T:
            async with AsyncScheduledEvents(url, **self.settings(sleep=self.asleep, **settings)) as se:
                return await call(se)

        return asyncio.run(main())
