"""Long polls: requests with `wait`, answered when the document changes or the time is up (PROTOCOL §9)."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from forewarn.fleet.guest_port import GuestFleet
from forewarn.fleet.replica import ScopeView
from forewarn.guest.counters import Counters
from forewarn.guest.rate_limit import RateCounter

R = TypeVar("R")

WAKE_BATCH = 250
"""How many long polls are woken in one iteration of the event loop."""


class LongPolls(Generic[R]):
    """All waiting long polls. Each ends at its timeout; `release` ends one early."""

    def __init__(self, fleet: GuestFleet, counters: Counters, *, per_vm: int) -> None:
        self._fleet = fleet
        self._counters = counters
        self._per_vm = per_vm
        self._polls: dict[object, _LongPoll[R]] = {}
        self._changed: deque[_LongPoll[R]] = deque()
        self._is_closing = False

    def hold(
        self, owner: object, view: ScopeView, counter: RateCounter, seconds: int, respond: Callable[[bool], R]
    ) -> asyncio.Future[R]:
        """Return the future of a response: `respond` makes it when the document changes (True) or the time is up.

        Above the limit of long polls, `hold` calls `respond` at once. An owner has one long poll at a time.
        """
        loop = asyncio.get_running_loop()
        poll = _LongPoll(view, respond, self)
        if self._is_closing or counter.long_polls >= self._per_vm:
            poll.end()
            return poll.response
        timer = loop.call_later(seconds, poll.end)
        self._polls[owner] = poll
        view.wait_for_change(poll.on_change)
        counter.long_polls += 1
        self._counters.long_polls += 1

        def forget(_: object) -> None:
            del self._polls[owner]
            timer.cancel()
            view.cancel_wait(poll.on_change)
            counter.long_polls -= 1
            self._counters.long_polls -= 1

        poll.response.add_done_callback(forget)
        return poll.response

    def release(self, owner: object) -> None:
        """End the long poll of this owner, if there is one, as if it had timed out."""
        if (poll := self._polls.get(owner)) is not None:
            poll.end()

    def close(self) -> None:
        """End all long polls as if they had timed out, and accept no more."""
        self._is_closing = True
        for poll in self._polls.values():
            poll.end()

    def record_requests(self) -> None:
        """Count every long poll as a request made now: its VM is alive and listening."""
        for view in {held.view for held in self._polls.values()}:
            self._fleet.last_seen.record_request(view)

    def wake_soon(self, poll: "_LongPoll[R]") -> None:
        """Wake a long poll soon, in batches, so that a thousand of them do not block the fleet, which calls this."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._wake)
        self._changed.append(poll)

    def _wake(self) -> None:
        for _ in range(min(WAKE_BATCH, len(self._changed))):
            self._changed.popleft().end(changed=True)
        if self._changed:
            asyncio.get_running_loop().call_soon(self._wake)


class _LongPoll(Generic[R]):
    __slots__ = ("_polls", "_respond", "response", "view")

    def __init__(self, view: ScopeView, respond: Callable[[bool], R], polls: LongPolls[R]) -> None:
        self.view = view
        self.response: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._respond = respond
        self._polls = polls

    def on_change(self) -> None:
        self._polls.wake_soon(self)

    def end(self, *, changed: bool = False) -> None:
        if self.response.done():
            return
        try:
            self.response.set_result(self._respond(changed))
        except Exception as error:  # noqa: BLE001 - who awaits the response handles it
            self.response.set_exception(error)
