"""Interpretation of responses: success or ClientError, ETag, long-poll offer, VM name, and api-version fallback.

A service that does not know an api-version answers 404 or 400 and lists the newest versions that it knows. Instance
metadata has many more versions than Scheduled Events, so the list may not help: this library tries the versions that it
knows first.
"""

import re

import msgspec

from forewarn.client.effects import Request, Response
from forewarn.client.errors import (
    ClientError,
    NoName,
    NoSuchEvent,
    NotAllowed,
    NotUnderstood,
    NoVersion,
    Refused,
    Unavailable,
)
from forewarn.core.text import truncate_text
from forewarn.wire.protocol import BYTE_ORDER_MARK, MAX_WAIT, VERSIONS

EVENTS_NEWEST_FIRST = VERSIONS[::-1]

INSTANCE_VERSION = "2017-08-01"
"""An api-version that every service with instance metadata knows and that contains the VM name."""

MOST_NAMED = 16
"""How many of the versions listed by a service to try."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class _VersionRefusal(msgspec.Struct, rename="kebab"):
    newest_versions: list[str]


def named_versions(response: Response) -> tuple[str, ...] | None:
    """Return the versions that the response lists, newest first; None if it lists none."""
    try:
        named = msgspec.json.decode(response.body, type=_VersionRefusal).newest_versions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return tuple(sorted(filter(_DAY.fullmatch, named), reverse=True)[:MOST_NAMED])


def refuses_version(response: Response) -> bool:
    """Return whether the response may mean that the service does not know the api-version."""
    return response.status == 404 or (response.status == 400 and named_versions(response) is not None)


def versions_to_try(known: tuple[str, ...], refused: str, response: Response) -> tuple[str, ...]:
    """Return the versions to try after one was refused, the most likely first.

    First those that both sides know; then all others that this library knows, newest first; finally those that only
    the service knows, because a document of a future version is probably readable too.
    """
    named = named_versions(response) or ()
    both = [version for version in known if version in named]
    return tuple(version for version in dict.fromkeys([*both, *known, *named]) if version != refused)


RETRYABLE_STATUSES = frozenset({408, 410, 425, 429})
"""Client error statuses that are transient; all statuses from 500 on are too."""

LONGEST_ETAG = 256
LONGEST_MESSAGE = 300


def response_error(endpoint: str, request: Request, response: Response) -> ClientError | None:
    """Return the error that a response means, or None for a success."""
    status = response.status
    if status in RETRYABLE_STATUSES or status >= 500:
        return Unavailable(endpoint, status, _message(response), _retry_after(response))
    if status in (401, 403):
        return NotAllowed(endpoint, status, _message(response))
    if status == 404:
        is_event = request.method == "POST" and named_versions(response) is None
        return (NoSuchEvent if is_event else NoVersion)(endpoint, status, _message(response))
    if 400 <= status < 500:
        return Refused(endpoint, status, _message(response))
    if 200 <= status < 300 or (status == 304 and _is_conditional(request)):
        return None
    return NotUnderstood(endpoint, f"status {status}")


def etag_of(response: Response) -> str | None:
    """Return the ETag; None if it is missing or cannot be sent back in a header."""
    etag = response.headers.get("etag", "").strip()
    return etag if 0 < len(etag) <= LONGEST_ETAG and etag.isascii() and etag.isprintable() else None


def offered_wait(response: Response, limit: int) -> int:
    """Return the longest `wait` of the next poll, in seconds; 0 if the service does not offer long polls."""
    offer = _whole_number(response.headers.get("forewarn-wait", ""))
    return 0 if offer is None else min(offer, limit, MAX_WAIT)


def vm_name_in(endpoint: str, response: Response) -> str:
    """Return the VM's resource name from its instance document."""
    try:
        whole = msgspec.json.decode(response.body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(endpoint, f"the instance document is not JSON: {error}") from error
    compute = whole.get("compute") if isinstance(whole, dict) else None
    name = compute.get("name") if isinstance(compute, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise NoName(endpoint, "the instance document has no compute.name")
    return name.strip()


def _is_conditional(request: Request) -> bool:
    return any(name == "If-None-Match" for name, _ in request.headers)


def _retry_after(response: Response) -> float | None:
    seconds = _whole_number(response.headers.get("retry-after", ""))
    return None if seconds is None else float(seconds)


def _whole_number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if 0 < len(digits) <= 9 and digits.isascii() and digits.isdigit() else None


def _message(response: Response) -> str:
    """Return the error message: `error` of the JSON body, else the start of the body."""
    text = _error_in(response.body) or response.body[:LONGEST_MESSAGE].decode(errors="replace")
    return " ".join(truncate_text(text, LONGEST_MESSAGE).split())


def _error_in(body: bytes) -> str | None:
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    error = whole.get("error") if isinstance(whole, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else None
