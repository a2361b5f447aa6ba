"""Why a question to the metadata endpoint brought no answer. Each class says what happened, and what to do.

ClientError
├── NotAnEndpoint       what was given as endpoint is none
├── NotAnEvent          what was to be approved is neither an event nor the id of one
├── Closed              the client was closed before the answer came
├── NotDiscovered       no endpoint was found by DHCP; its own tree is in `forewarn.client.discovery`
├── Unreachable *       nobody answers at the endpoint
│   └── TooSlow *       somebody took the request, but no whole answer came in time
├── Unavailable *       the service says that it cannot answer now: 408, 410, 425, 429, 5xx
├── NotUnderstood *     an answer came that is not one of Scheduled Events
│   └── NoName          the endpoint does not say what this VM is called
└── Refused             the service says no: any other 4xx
    ├── NotAllowed      it does not serve this machine: 401, 403
    ├── NoSuchEvent     it does not find what is to be approved: 404 to an approval
    └── NoVersion       it has none of the api-versions that this library knows: 404 to all of them

`get`, `approve` and `name` try again for a while after those with a star, then raise them. `watch` and `interruptible`
raise none but Closed: they go on trying for as long as they are wanted.
"""

from typing import ClassVar

from forewarn.core.base_error import BaseError


class ClientError(BaseError):
    """The question was not answered."""

    advice: ClassVar[str] = ""
    """What to do about it: one sentence, which also ends the message."""

    is_passing: ClassVar[bool] = False
    """Whether asking again may help."""

    @property
    def what(self) -> str:
        """What happened: the message without the advice."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what


class NotAnEndpoint(ClientError, ValueError):
    """What was given as endpoint is none."""

    advice = "write it like 169.254.169.254 or http://127.0.0.1:8180, without a path"
    template = "{endpoint!r} is not a metadata endpoint"
    endpoint: str


class NotAnEvent(ClientError, ValueError):
    """What was to be approved is neither an event nor the id of one."""

    advice = "give an event of this client, or its id"
    template = "{given!r} cannot be approved"
    given: object


class Closed(ClientError):
    """The client was closed before the answer came."""

    advice = "create another client to send more requests"
    template = "the client is closed"


class Unreachable(ClientError):
    """Nobody answers at the endpoint."""

    advice = (
        "check that this is a VM with a metadata service, that its firewall and routes let the address through, "
        "or set FOREWARN_ENDPOINT to the address of the service"
    )
    is_passing = True
    template = "cannot reach {endpoint}: {why}"
    endpoint: str
    why: str


class TooSlow(Unreachable):
    """Somebody took the request, or might have, but no whole answer came in time."""

    advice = "try again later, or allow more time with timeout= (the very first answer of a service has first_timeout=)"


class Unavailable(ClientError):
    """The service says that it cannot answer now. `retry_after` is the pause, in seconds, for which it asks."""

    advice = "try again later: the service is being updated, overloaded, or asked too often by this VM"
    is_passing = True
    template = "{endpoint} answered {status}{sentence}"
    endpoint: str
    status: int
    message: str
    retry_after: float | None

    @property
    def sentence(self) -> str:
        """The service's own sentence, if it sent one."""
        return f": {self.message}" if self.message else ""


class NotUnderstood(ClientError):
    """An answer came that is not one of Scheduled Events."""

    advice = "check that the endpoint is a metadata service and that nothing, such as a proxy, answers in its place"
    is_passing = True
    template = "{endpoint} does not answer as Scheduled Events does: {why}"
    endpoint: str
    why: str


class NoName(NotUnderstood):
    """The endpoint does not say what this VM is called."""

    advice = "give the VM's resource name with name="
    is_passing = False
    template = "{endpoint} does not have the name of this VM: {why}"


class Refused(ClientError):
    """The service says no; `message` is its own sentence."""

    advice = "read the service's sentence: asking the same again will not help"
    template = "{endpoint} answered {status}{sentence}"
    endpoint: str
    status: int
    message: str

    @property
    def sentence(self) -> str:
        """The service's own sentence, if it sent one."""
        return f": {self.message}" if self.message else ""


class NotAllowed(Refused):
    """The service does not serve this machine."""

    advice = "ask inside the VM itself, and have the people who run the service check that it knows the VM's address"


class NoSuchEvent(Refused):
    """The service does not find what is to be approved."""

    advice = "see with get() which events there are: this one may be over; if that fails too, it says what is wrong"


class NoVersion(Refused):
    """The service has no Scheduled Events, or speaks none of the api-versions that this library knows."""

    advice = "check the endpoint, or upgrade this library"
