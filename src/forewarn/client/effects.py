"""Effects that a client flow yields (Send, Sleep, Log, Yield) and the results that it is sent (Response, Failure).

Values only.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from forewarn.client.changes import Change
from forewarn.client.errors import ClientError, NotUnderstood, TooSlow, Unreachable

T = TypeVar("T")


class Request(NamedTuple):
    """One HTTP request, without the headers that all requests have."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Send(NamedTuple):
    """Send a request; the reply is its Response, or a Failure if no complete one arrives within `timeout` seconds."""

    request: Request
    timeout: float


class Sleep(NamedTuple):
    """Wait for `seconds`; the reply is None. `error` is the error after which the flow retries."""

    seconds: float
    error: ClientError | None = None


class Log(NamedTuple):
    """Log a message for the user; the reply is None."""

    message: str


class Yield(NamedTuple):
    """Yield changes to the user; the reply is None, as soon as the user wants more."""

    changes: tuple[Change, ...]


Command: TypeAlias = Send | Sleep | Log | Yield


class Response(NamedTuple):
    """A complete response. Header names are in lower case; the first of repeated headers wins."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(NamedTuple):
    """Why there is no complete response: the class of the error, and a short reason."""

    kind: type[Unreachable] | type[TooSlow] | type[NotUnderstood]
    reason: str


Reply: TypeAlias = Response | Failure | None

Flow: TypeAlias = Generator[Command, Reply, T]
