"""Exceptions of the in-test service, besides the errors of the operator API.

RuntimeError
├── NotRunning          used before start() or after stop()
├── AlreadyStarted      started twice
├── VmEndpointNotFound  the VM has no guest endpoint of its own
└── TooManyRequests     VMs sent more requests than the request log keeps
ValueError
├── InvalidStart        the start time is not usable
└── InvalidEventType    unknown event type
AssertionError
└── WaitTimeout         a wait_… helper timed out
"""

from collections.abc import Sequence

from forewarn.core.base_error import BaseError
from forewarn.core.text import join_choices


class NotRunning(BaseError, RuntimeError):
    """The service was used before it was started, or after it was stopped."""

    template = "this service is not running: use it inside `with Forewarn() as forewarn:`"


class AlreadyStarted(BaseError, RuntimeError):
    """The service was started twice."""

    template = "a service can be started only once: create another one with Forewarn(…)"


class VmEndpointNotFound(BaseError, RuntimeError):
    """A VM has no guest endpoint of its own. A VM that was just added gets its port a moment later."""

    template = "VM {vm} has no guest endpoint of its own: is `listen = none` set, or was the VM added just now?"
    vm: str


class TooManyRequests(BaseError, RuntimeError):
    """VMs have sent more requests than the log keeps, so the wanted requests may have been dropped."""

    template = (
        "VMs have sent more requests than the log keeps, and the {dropped} oldest were dropped: does the program poll "
        "without a pause? In a long test, call forget_requests() now and then; newest_requests() returns the "
        "requests that are left"
    )
    dropped: int


class InvalidStart(BaseError, ValueError):
    """The service cannot start at this time."""

    template = "{problem}"
    problem: str


class InvalidEventType(BaseError, ValueError):
    """No event type has this name."""

    template = "unknown event type {value!r}: use {choices}"
    value: str
    types: Sequence[str]

    @property
    def choices(self) -> str:
        """The types that exist."""
        return join_choices(self.types)


class WaitTimeout(BaseError, AssertionError):
    """The program under test did not do in time what the test waits for."""

    template = "{what} within {seconds:g} s. {instead}"
    what: str
    seconds: float
    instead: str


# Earlier public names, kept as aliases.
NoEndpoint = VmEndpointNotFound
TooMuchSeen = TooManyRequests
BadStart = InvalidStart
NoSuchType = InvalidEventType
NotSeen = WaitTimeout
