"""Query the requests that VMs sent to the guest endpoint, and wait for them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound
from forewarn.guest.observer import Observed, Observer
from forewarn.testing.errors import NotRunning, TooManyRequests, WaitTimeout
from forewarn.testing.event import Event
from forewarn.testing.request_log import RequestLog, approved_ids, event_in_response, is_events_query, summarize
from forewarn.testing.vm import Vm, VmLike

T = TypeVar("T")

DEFAULT_TIMEOUT = 30.0
"""How many seconds of real time a test waits for the program under test by default."""


class RequestQueries(ABC):
    """Queries of the request log: what VMs did at their endpoints."""

    def __init__(self) -> None:
        self._request_log = RequestLog()

    @property
    @abstractmethod
    def api(self) -> ApiClient:
        """The operator API."""

    @abstractmethod
    def _initial_names(self) -> set[str]:
        """Return the full names of the fleet's initial VMs; some may have been deleted since."""

    def requests(self, vm: VmLike | None = None) -> list[Observed]:
        """Return all requests of a VM, or of all VMs, in order of arrival.

        This includes requests of `vm.document()` and `vm.approve()`. Raises TooManyRequests if some were dropped.
        """
        if self._request_log.dropped:
            raise TooManyRequests(self._request_log.dropped)
        return self.newest_requests(vm)

    def newest_requests(self, vm: VmLike | None = None) -> list[Observed]:
        """Return the requests that the log still has, even if older ones were dropped."""
        return self._request_log.requests(None if vm is None else self._full_name(vm))

    @property
    def dropped_requests(self) -> int:
        """How many of the oldest requests were dropped because the log was full."""
        return self._request_log.dropped

    def forget_requests(self) -> None:
        """Clear the request log, in a long test or before its next part.

        Later calls of the wait methods consider only requests that arrive afterwards.
        """
        self._request_log.clear()

    def observe_requests(self, observer: Observer) -> None:
        """Call the observer with each request, before its response is sent: the program cannot go on meanwhile.

        It is called in the thread of the service, so it must be fast. A response that waits is reported twice.
        """
        self._request_log.observers.append(observer)

    def approvals(self, vm: VmLike | None = None) -> list[str]:
        """Return the ids of the events that a VM, or any VM, has approved, in order, with repetitions.

        Refused approvals are not included; see `requests`.
        """
        return [id_ for request in self.requests(vm) for id_ in approved_ids(request)]

    def wait_until_asked(self, vm: VmLike, *, times: int = 1, timeout: float = DEFAULT_TIMEOUT) -> list[Observed]:
        """Wait until a VM has polled its events `times` times in total, and return these requests."""
        __tracebackhide__ = True
        name = self._full_name(vm)

        def find_requests() -> list[Observed] | None:
            requests = list(filter(is_events_query, self._request_log.requests(name)))
            return requests if len(requests) >= times else None

        often = f"{times} times " if times > 1 else ""
        return self._wait_for(find_requests, f"{name} has not polled its events {often}", name, timeout)

    def wait_until_told(
        self,
        event: Event | str,
        *,
        vm: VmLike | None = None,
        status: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Observed:
        """Wait until a response to a VM contains the event, in this status if given, and return that request."""
        __tracebackhide__ = True
        name = None if vm is None else self._full_name(vm)

        def find_request() -> Observed | None:
            for request in self._request_log.requests(name):
                shown = event_in_response(request, str(event))
                if shown is not None and status in (None, shown.status):
                    return request
            return None

        suffix = f"as {status} " if status is not None else ""
        return self._wait_for(find_request, f"{_describe_absence(name)} received event {event} {suffix}", name, timeout)

    def wait_for_approval(
        self, event: Event | str, *, vm: VmLike | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> Observed:
        """Wait until a VM, or any VM, has approved an event, and return that request."""
        __tracebackhide__ = True
        name = None if vm is None else self._full_name(vm)
        event_id = str(event).upper()

        def approved() -> Observed | None:
            requests = self._request_log.requests(name)
            return next((request for request in requests if event_id in approved_ids(request)), None)

        return self._wait_for(approved, f"{_describe_absence(name)} approved event {event}", name, timeout)

    def wait_until(self, holds: Callable[[], T], *, timeout: float = DEFAULT_TIMEOUT) -> T:
        """Wait until `holds` returns a true value, and return it. It is called at each request and each event change.

        Example: `lambda: len(forewarn.requests("web-0")) > 5`.
        """
        __tracebackhide__ = True
        return self._wait_for(lambda: holds() or None, "the condition did not become true", None, timeout)

    def wait_for_state(self, event: Event | str, state: str, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until an event is `Scheduled`, `Started`, `completed`, `canceled` or `failed`.

        Only needed with the system clock; with a manual clock, everything has settled when `advance` returns.
        """
        __tracebackhide__ = True
        one = event if isinstance(event, Event) else Event(self.api, event, "")
        self._wait_for(lambda: True if one.state == state else None, f"event {event} is not {state}", None, timeout)

    def _full_name(self, vm: VmLike) -> str:
        """Return the VM's full name, as in the request log. Raises NotFound unless a VM has, or had, this name."""
        if isinstance(vm, Vm):
            return vm.full_name
        try:
            found = self.api.vm(vm)
        except (NotFound, NotRunning):
            names = self._initial_names() | self._request_log.vms
            former_names = [name for name in names if vm in (name, name.rpartition("/")[2])]
            if len(former_names) != 1:
                raise
            return former_names[0]
        return f"{found.scope}/{found.name}"

    def _wait_for(self, find: Callable[[], T | None], missing: str, vm: str | None, timeout: float) -> T:
        """Wait until `find` returns a value. Tracebacks show the waiting line of the test, not these methods."""
        __tracebackhide__ = True
        found = self._request_log.wait_for(find, timeout)
        if found is None and self._request_log.dropped:
            raise TooManyRequests(self._request_log.dropped)
        if found is None:
            raise WaitTimeout(missing.rstrip(), timeout, self._describe_requests(vm))
        return found

    def _describe_requests(self, vm: str | None) -> str:
        """Summarize the requests of a VM, or of each VM, for the message of a timeout."""
        if vm is not None:
            return summarize(self._request_log.requests(vm))
        names = sorted({request.vm for request in self._request_log.requests()})
        return (
            " ".join(f"{name}: {summarize(self._request_log.requests(name))}" for name in names)
            or "No VM has sent a request."
        )


def _describe_absence(vm: str | None) -> str:
    """Return the start of a sentence about what a VM, or any VM, has not done."""
    return "no VM has" if vm is None else f"{vm} has not"
