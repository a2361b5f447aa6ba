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

from forewarn.core.text import join_choices


class NotRunning(RuntimeError):
    """The service was used before it was started, or after it was stopped."""

    def __init__(self) -> None:
        super().__init__("this service is not running: use it inside of `with Forewarn() as forewarn:`")


class AlreadyStarted(RuntimeError):
    """The service was started twice."""

    def __init__(self) -> None:
        super().__init__("a service is started once: make another one with Forewarn(…)")


class VmEndpointNotFound(RuntimeError):
    """A VM has no port of its own; those that come later have theirs a moment after."""

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(
            f"VM {vm} has no endpoint of its own: does a setting say `listen = none`, or is it just added?"
        )


class TooManyRequests(RuntimeError):
    """VMs have made more requests than are remembered: what was asked for may be among those that were dropped."""

    def __init__(self, dropped: int) -> None:
        self.dropped = dropped
        super().__init__(
            f"VMs have made so many requests that the {dropped} oldest were dropped, so nobody can say any more what "
            "all of them were: does the program ask without a pause? A test that goes on for long calls "
            "forget_requests() now and then; newest_requests() returns those that are left"
        )


class InvalidStart(ValueError):
    """The service cannot begin at this time."""


class InvalidEventType(ValueError):
    """An event is to be of a type that there is not."""

    def __init__(self, value: str, types: Sequence[str]) -> None:
        self.value = value
        super().__init__(f"there is no event type {value!r}: it is {join_choices(types)}")


class WaitTimeout(AssertionError):
    """What a test waits for has not happened in time: the program under test has not done it."""

    def __init__(self, what: str, seconds: float, instead: str) -> None:
        self.what, self.seconds, self.instead = what, seconds, instead
        super().__init__(f"{what} within {seconds:g} s. {instead}")


# Earlier public names, kept as aliases.
NoEndpoint = VmEndpointNotFound
TooMuchSeen = TooManyRequests
BadStart = InvalidStart
NoSuchType = InvalidEventType
NotSeen = WaitTimeout
