"""Errors of the client library. Each class says what happened and what to do.

ClientError
├── NotAnEndpoint       the given endpoint is not valid
├── NotAnEvent          the argument of approve is neither an event nor an event id
├── Closed              the client was closed
├── NotDiscovered       DHCP discovery found no endpoint; see the tree in `forewarn.client.discovery`
├── Unreachable *       the endpoint cannot be reached
│   └── TooSlow *       no complete response arrived in time
├── Unavailable *       the service cannot answer now: 408, 410, 425, 429, 5xx
├── NotUnderstood *     the response is not one of Scheduled Events
│   └── NoName          the endpoint does not return the name of this VM
└── Refused             the service refused the request: any other 4xx
    ├── NotAllowed      the service does not serve this machine: 401, 403
    ├── NoSuchEvent     the event to approve does not exist: 404 to an approval
    └── NoVersion       the service knows none of this library's api-versions: 404 to all of them

`get`, `approve` and `name` retry for a while after the errors with a star, then raise them. `watch` and `interruptible`
retry until the client is closed, and raise only Closed.
"""

from typing import ClassVar

from forewarn.core.base_error import BaseError


class ClientError(BaseError):
    """Base class: the request did not succeed."""

    advice: ClassVar[str] = ""
    """What to do about the error, in one sentence. The message ends with it."""

    is_passing: ClassVar[bool] = False
    """Whether the error is transient, so that a retry may succeed."""

    @property
    def what(self) -> str:
        """What happened: the message without the advice."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what


class NotAnEndpoint(ClientError, ValueError):
    """The given endpoint is not valid."""

    advice = "write it like 169.254.169.254 or http://127.0.0.1:8180, without a path"
    template = "{endpoint!r} is not a metadata endpoint"
    endpoint: str


class NotAnEvent(ClientError, ValueError):
    """The argument of approve is neither an event nor an event id."""

    advice = "pass an event of this client, or its id"
    template = "{given!r} cannot be approved"
    given: object


class Closed(ClientError):
    """The client was closed."""

    advice = "create another client to send more requests"
    template = "the client is closed"


class Unreachable(ClientError):
    """The endpoint cannot be reached."""

    advice = (
        "check that this is a VM with a metadata service and that firewall and routes allow its address, "
        "or set FOREWARN_ENDPOINT to the URL of the service"
    )
    is_passing = True
    template = "cannot reach {endpoint}: {why}"
    endpoint: str
    why: str


class TooSlow(Unreachable):
    """No complete response arrived in time. The service may have received the request."""

    advice = "try again later, or allow more time with timeout= (first_timeout= for the first response of a service)"


class Unavailable(ClientError):
    """The service cannot answer now. `retry_after` is the pause that it requests, in seconds."""

    advice = "try again later: the service is being updated, is overloaded, or limits the request rate of this VM"
    is_passing = True
    template = "{endpoint} answered {status}{sentence}"
    endpoint: str
    status: int
    message: str
    retry_after: float | None

    @property
    def sentence(self) -> str:
        """The error message of the service, after a colon; empty if there is none."""
        return f": {self.message}" if self.message else ""


class NotUnderstood(ClientError):
    """The response is not one of Scheduled Events."""

    advice = "check that the endpoint is a metadata service, and that no proxy answers in its place"
    is_passing = True
    template = "{endpoint} sent an invalid response: {why}"
    endpoint: str
    why: str


class NoName(NotUnderstood):
    """The endpoint does not return the name of this VM."""

    advice = "pass the VM's resource name with name="
    is_passing = False
    template = "{endpoint} does not return the name of this VM: {why}"


class Refused(ClientError):
    """The service refused the request; `message` is its error message."""

    advice = "see the message of the service; a retry of the same request will not help"
    template = "{endpoint} answered {status}{sentence}"
    endpoint: str
    status: int
    message: str

    @property
    def sentence(self) -> str:
        """The error message of the service, after a colon; empty if there is none."""
        return f": {self.message}" if self.message else ""


class NotAllowed(Refused):
    """The service does not serve this machine."""

    advice = "send the request from inside the VM, and let the operator check that the service knows the VM's address"


class NoSuchEvent(Refused):
    """The event to approve does not exist."""

    advice = "list the events with get(): this one may have ended"


class NoVersion(Refused):
    """The service has no Scheduled Events, or none of the api-versions that this library knows."""

    advice = "check the endpoint, or upgrade this library"
