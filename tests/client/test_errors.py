"""Every error says what happened and what to do, and all other exceptions are wrapped."""

import http.client
import inspect
import socket
from collections.abc import Iterator
from http.client import HTTPException
from typing import TypeVar

import msgspec
import pytest

import forewarn.client.discovery  # for its errors, which are part of the tree
from forewarn.client import (
    ClientError,
    Closed,
    NoName,
    NoSuchEvent,
    NotAllowed,
    NotAnEndpoint,
    NotAnEvent,
    NotUnderstood,
    NoVersion,
    Refused,
    TooSlow,
    Unavailable,
    Unreachable,
    errors,
)
from forewarn.client.effects import Failure
from forewarn.client.transport import failure_of

T = TypeVar("T", bound=Exception)

AT = "http://127.0.0.1:8180"
EXAMPLES: tuple[ClientError, ...] = (
    NotAnEndpoint("ftp://x"),
    NotAnEvent(17),
    Closed(),
    Unreachable(AT, "connection refused"),
    TooSlow(AT, "no complete response in time"),
    Unavailable(AT, 429, "Too Many Requests", 1.0),
    NotUnderstood(AT, "the body is not JSON"),
    NoName(AT, "status 404"),
    Refused(AT, 400, "unknown event"),
    NotAllowed(AT, 403, ""),
    NoSuchEvent(AT, 404, ""),
    NoVersion(AT, 404, "not found"),
)


def family(error: type[T]) -> Iterator[type[T]]:
    for child in error.__subclasses__():
        yield child
        yield from family(child)


def test_every_error_has_an_example() -> None:
    own = {error for error in family(ClientError) if error.__module__ == errors.__name__}
    assert {type(example) for example in EXAMPLES} == own


@pytest.mark.parametrize("error", tuple(family(ClientError)))
def test_every_error_says_what_happened_and_what_to_do(error: type[ClientError]) -> None:
    assert "." in (error.__doc__ or ""), "a sentence"
    assert len(error.advice.split()) >= 4, "what to do"
    assert "advice" in vars(error) or error.__module__ == forewarn.client.discovery.__name__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_message_ends_with_the_advice(error: ClientError) -> None:
    assert str(error) == f"{error.what}; {error.advice}"


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_tree_in_the_docstring_is_the_real_one(error: ClientError) -> None:
    rows = [row for row in inspect.getdoc(errors).splitlines() if "── " in row]  # type: ignore[union-attr]  # it has a docstring
    drawn = {row.split("── ")[1].split()[0]: row for row in rows}
    row = drawn[type(error).__name__]
    depth = len(type(error).__mro__[: type(error).__mro__.index(ClientError)])
    assert row.index("──") == 4 * (depth - 1) + 1
    assert (" * " in row) == error.is_passing


FOREIGN: dict[str, tuple[Exception, type[ClientError]]] = {
    "time-out": (TimeoutError("timed out"), TooSlow),
    "refused": (ConnectionRefusedError(111, "Connection refused"), Unreachable),
    "reset": (ConnectionResetError(104, "Connection reset by peer"), Unreachable),
    "broken pipe": (BrokenPipeError(32, "Broken pipe"), Unreachable),
    "no route": (OSError(113, "No route to host"), Unreachable),
    "no such host": (socket.gaierror(-2, "Name or service not known"), Unreachable),
    "without a message": (OSError(), Unreachable),
    "not allowed": (PermissionError(1, "Operation not permitted"), Unreachable),
    "bad value": (ValueError("Invalid header value"), NotUnderstood),
    "bad text": (UnicodeDecodeError("ascii", b"x", 0, 1, "ordinal not in range"), NotUnderstood),
    "bad JSON": (msgspec.DecodeError("truncated"), NotUnderstood),
}


@pytest.mark.parametrize(("error", "kind"), FOREIGN.values(), ids=FOREIGN)
def test_other_errors_become_client_errors(error: Exception, kind: type[ClientError]) -> None:
    failure = failure_of(error)
    assert isinstance(failure, Failure)
    assert (failure.kind, bool(failure.reason)) == (kind, True)


def arguments(error: type[Exception]) -> tuple[object, ...]:
    """Return constructor arguments for an error of http.client."""
    return {http.client.IncompleteRead: (b"",), http.client.UnknownProtocol: ("HTTP/9",)}.get(error, ("why",))


@pytest.mark.parametrize(
    "error", [HTTPException, *(each for each in family(HTTPException) if each.__module__ == HTTPException.__module__)]
)
def test_every_error_of_http_client_becomes_a_client_error(error: type[Exception]) -> None:
    expected = Unreachable if issubclass(error, OSError) else NotUnderstood
    failure = failure_of(error(*arguments(error)))
    assert failure is not None
    assert failure.kind is expected


@pytest.mark.parametrize("error", [TypeError("x"), AttributeError("x"), RuntimeError("x"), KeyError("x")])
def test_internal_errors_are_not_turned_into_failures(error: Exception) -> None:
    assert failure_of(error) is None
