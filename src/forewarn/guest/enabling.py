"""Requests switch Scheduled Events on for their scope; that may take a while, and until then its answers wait."""

import asyncio
from collections.abc import Awaitable, Generator
from datetime import timedelta
from typing import Any

from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.guest.callers import Caller


class Enabling:
    """Takes note of requests, and of the scopes that are being switched on (PROTOCOL §6: up to two minutes)."""

    def __init__(self, fleet: Fleet, delay: timedelta) -> None:
        self._fleet = fleet
        self._delay = delay.total_seconds()
        self._under_way: dict[ScopeView, asyncio.Event] = {}

    def note(self, caller: Caller) -> Awaitable[None] | None:
        """Take note of a valid request. What is returned, if anything, is to be awaited before the answer."""
        saving = self._fleet.record_request(caller.view)
        if self._delay > 0 and not caller.scope.enabled:
            self._begin(caller.view)
        over = self._under_way.get(caller.view)
        return saving if over is None else _Both(saving, over)

    def close(self) -> None:
        """Let nobody wait any more."""
        self._delay = 0
        for view in tuple(self._under_way):
            self._end(view)

    def _begin(self, view: ScopeView) -> None:
        if view not in self._under_way:
            self._under_way[view] = asyncio.Event()
            asyncio.get_running_loop().call_later(self._delay, self._end, view)

    def _end(self, view: ScopeView) -> None:
        if (over := self._under_way.pop(view, None)) is not None:
            over.set()


class _Both:
    """Awaitable for two things. Unlike a coroutine, it may be left alone."""

    __slots__ = ("_over", "_saving")

    def __init__(self, saving: Awaitable[None] | None, over: asyncio.Event) -> None:
        self._saving = saving
        self._over = over

    def __await__(self) -> Generator[Any, None, None]:
        if self._saving is not None:
            yield from self._saving.__await__()
        yield from self._over.wait().__await__()
