"""Effects that a client flow yields (Send, Sleep, Yield) and the results that it is sent (Response, Failure).

Values only.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from forewarn.client.changes import Change
from forewarn.client.errors import ClientError, NotUnderstood, TooSlow, Unreachable

T = TypeVar("T")


class Request(NamedTuple):
    """One HTTP request, but for the headers that every one has."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Send(NamedTuple):
    """Send a request; reply with its Response, or with a Failure when no whole one has come within so many seconds."""

    request: Request
    timeout: float


class Sleep(NamedTuple):
    """Let so many seconds pass; reply with nothing. `error` is the one after which the flow retries."""

    seconds: float
    error: ClientError | None = None


class Yield(NamedTuple):
    """Give changes to the user; reply with nothing, when the user wants more."""

    changes: tuple[Change, ...]


Command: TypeAlias = Send | Sleep | Yield


class Response(NamedTuple):
    """A whole answer. Header names are in lower case; of repeated ones the first counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(NamedTuple):
    """Why there is no whole answer: the class of error that it is, and a few words."""

    kind: type[Unreachable] | type[TooSlow] | type[NotUnderstood]
    reason: str


Reply: TypeAlias = Response | Failure | None

Flow: TypeAlias = Generator[Command, Reply, T]
