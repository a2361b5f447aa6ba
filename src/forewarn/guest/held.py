"""Held requests: an answer that waits until there is something new to say (PROTOCOL §9)."""

import asyncio
from collections import deque

from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.guest.callers import Tally
from forewarn.guest.counters import Counters

AT_ONCE = 250
"""How many held requests are woken before others on the event loop get their turn."""


class HeldRequests:
    """All requests that are held now. Each ends by itself when its time is over; `release` ends one or all early."""

    def __init__(self, fleet: Fleet, counters: Counters, *, per_vm: int) -> None:
        self._fleet = fleet
        self._counters = counters
        self._per_vm = per_vm
        self._held: dict[object, _Held] = {}
        self._changed: deque[_Held] = deque()
        self._is_closing = False

    async def hold(self, owner: object, view: ScopeView, tally: Tally, seconds: int) -> bool:
        """Wait until the document changes or the time is over, and tell whether it has changed.

        Where nothing more can be held, that is at once. An owner has one request held at a time.
        """
        if self._is_closing or tally.held >= self._per_vm:
            return False
        loop = asyncio.get_running_loop()
        held = self._held[owner] = _Held(view, self)
        timer = loop.call_later(seconds, held.end)
        view.wait_for_change(held.change)
        tally.held += 1
        self._counters.held += 1
        try:
            return await held.ending
        finally:
            del self._held[owner]
            timer.cancel()
            view.cancel_wait(held.change)
            tally.held -= 1
            self._counters.held -= 1

    def release(self, owner: object) -> None:
        """End the request that is held for this owner, if there is one, as if its time were over."""
        if (held := self._held.get(owner)) is not None:
            held.end()

    def close(self) -> None:
        """End all of them as if their time were over, and hold nothing any more."""
        self._is_closing = True
        for held in self._held.values():
            held.end()

    def note(self) -> None:
        """Count every held request as one that has just been made: its VM is there and listens."""
        for view in {held.view for held in self._held.values()}:
            self._fleet.record_request(view)

    def has_changed(self, held: "_Held") -> None:
        """Wake a request soon: a thousand of them do not keep the fleet, which calls this, from its work."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._wake)
        self._changed.append(held)

    def _wake(self) -> None:
        for _ in range(min(AT_ONCE, len(self._changed))):
            self._changed.popleft().end(changed=True)
        if self._changed:
            asyncio.get_running_loop().call_soon(self._wake)


class _Held:
    __slots__ = ("_requests", "ending", "view")

    def __init__(self, view: ScopeView, requests: HeldRequests) -> None:
        self.view = view
        self.ending: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._requests = requests

    def change(self) -> None:
        self._requests.has_changed(self)

    def end(self, *, changed: bool = False) -> None:
        if not self.ending.done():
            self.ending.set_result(changed)
