"""Seeing what VMs do at their endpoints, and waiting for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound
from forewarn.guest.observer import Observed
from forewarn.testing.errors import NotRunning, NotSeen, TooMuchSeen
from forewarn.testing.event import Event
from forewarn.testing.vm import Vm, VmLike
from forewarn.testing.witness import Witness, approved_ids, asks_for_events, summary, told_of

T = TypeVar("T")

TIMEOUT = 30.0
"""For how many seconds, of real time, a test waits for the program under test unless it says otherwise."""


class SeesVms(ABC):
    """Whoever has a witness at the endpoints can tell what VMs did there."""

    def __init__(self) -> None:
        self._witness = Witness()

    @property
    @abstractmethod
    def api(self) -> ApiClient:
        """The operator API."""

    @abstractmethod
    def _first_names(self) -> set[str]:
        """Return the full names of the VMs that there were from the start; some may have left."""

    def requests(self, vm: VmLike | None = None) -> list[Observed]:
        """Return all requests at the endpoint of a VM, or at all of them, in the order in which they came.

        What was asked by `vm.document()` and `vm.approve()` is among them. Raises TooMuchSeen where some were dropped.
        """
        if self._witness.dropped:
            raise TooMuchSeen(self._witness.dropped)
        return self.newest_requests(vm)

    def newest_requests(self, vm: VmLike | None = None) -> list[Observed]:
        """Return the requests that were not dropped, whether or not these are all."""
        return self._witness.requests(None if vm is None else self._full_name(vm))

    @property
    def dropped_requests(self) -> int:
        """How many requests, the oldest, were too many to be remembered."""
        return self._witness.dropped

    def forget_requests(self) -> None:
        """Let all that was seen so far be as if it had not been: for tests that go on for long, and for the next part.

        What waits afterwards waits for what is still to come.
        """
        self._witness.forget()

    def approvals(self, vm: VmLike | None = None) -> list[str]:
        """Return the ids of the events that a VM has approved, or any VM, in order and as often as it was said.

        An approval that was refused is none; `requests` has it.
        """
        return [id_ for request in self.requests(vm) for id_ in approved_ids(request)]

    def wait_until_asked(self, vm: VmLike, *, times: int = 1, timeout: float = TIMEOUT) -> list[Observed]:
        """Wait until a VM has asked for its events so many times in all, and return these requests."""
        __tracebackhide__ = True
        name = self._full_name(vm)

        def asked() -> list[Observed] | None:
            requests = list(filter(asks_for_events, self._witness.requests(name)))
            return requests if len(requests) >= times else None

        often = f"{times} times " if times > 1 else ""
        return self._seen(asked, f"{name} has not asked for its events {often}", name, timeout)

    def wait_until_told(
        self, event: Event | str, *, vm: VmLike | None = None, status: str | None = None, timeout: float = TIMEOUT
    ) -> Observed:
        """Wait until a VM has been told of an event, in this status if one is given, and return that request."""
        __tracebackhide__ = True
        name = None if vm is None else self._full_name(vm)

        def told() -> Observed | None:
            for request in self._witness.requests(name):
                known = told_of(request, str(event))
                if known is not None and status in (None, known.status):
                    return request
            return None

        way = f"as {status} " if status is not None else ""
        return self._seen(told, f"{_nobody(name)} been told of event {event} {way}", name, timeout)

    def wait_for_approval(self, event: Event | str, *, vm: VmLike | None = None, timeout: float = TIMEOUT) -> Observed:
        """Wait until a VM, or any VM, has approved an event, and return that request."""
        __tracebackhide__ = True
        name = None if vm is None else self._full_name(vm)
        wanted = str(event).upper()

        def approved() -> Observed | None:
            requests = self._witness.requests(name)
            return next((request for request in requests if wanted in approved_ids(request)), None)

        return self._seen(approved, f"{_nobody(name)} approved event {event}", name, timeout)

    def wait_until(self, holds: Callable[[], T], *, timeout: float = TIMEOUT) -> T:
        """Wait until something holds, which is looked at whenever a VM asks or an event changes; return what it gives.

        `lambda: len(forewarn.requests("web-0")) > 5`, for instance.
        """
        __tracebackhide__ = True
        return self._seen(lambda: holds() or None, "what was waited for does not hold", None, timeout)

    def wait_for_state(self, event: Event | str, state: str, *, timeout: float = TIMEOUT) -> None:
        """Wait until an event is `Scheduled`, `Started`, `completed`, `canceled` or `failed`.

        For a service in real time; with manual time, `advance` has settled everything when it returns.
        """
        __tracebackhide__ = True
        one = event if isinstance(event, Event) else Event(self.api, event, "")
        self._seen(lambda: True if one.state == state else None, f"event {event} is not {state}", None, timeout)

    def _full_name(self, vm: VmLike) -> str:
        """Return the name by which requests are told apart. One that no VM bears, or ever bore, is refused."""
        if isinstance(vm, Vm):
            return vm.full_name
        try:
            found = self.api.vm(vm)
        except (NotFound, NotRunning):
            names = self._first_names() | self._witness.vms
            departed = [name for name in names if vm in (name, name.rpartition("/")[2])]
            if len(departed) != 1:
                raise
            return departed[0]
        return f"{found.scope}/{found.name}"

    def _seen(self, look: Callable[[], T | None], missing: str, vm: str | None, timeout: float) -> T:
        """Wait for what a test waits for. A report shows the line of the test that waited, and none of these."""
        __tracebackhide__ = True
        found = self._witness.wait_for(look, timeout)
        if found is None and self._witness.dropped:
            raise TooMuchSeen(self._witness.dropped)
        if found is None:
            raise NotSeen(missing.rstrip(), timeout, self._instead(vm))
        return found

    def _instead(self, vm: str | None) -> str:
        """Tell what was seen in place of what was waited for."""
        if vm is not None:
            return summary(self._witness.requests(vm))
        names = sorted({request.vm for request in self._witness.requests()})
        return (
            " ".join(f"{name}: {summary(self._witness.requests(name))}" for name in names)
            or "No VM has asked anything."
        )


def _nobody(vm: str | None) -> str:
    """Begin a sentence about what a VM, or any VM, has not done."""
    return "no VM has" if vm is None else f"{vm} has not"
