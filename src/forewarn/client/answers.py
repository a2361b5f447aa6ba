"""What an answer of the service means: a success to be read, or an error."""

import msgspec

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
from forewarn.client.talk import Answer, Request
from forewarn.client.versions import named_versions
from forewarn.core.text import truncate_text
from forewarn.wire.protocol import BYTE_ORDER_MARK, MAX_WAIT

NOT_NOW = frozenset({408, 410, 425, 429})
"""Refusals that pass, besides everything from 500 on."""

LONGEST_ETAG = 256
LONGEST_MESSAGE = 300


def trouble_with(endpoint: str, request: Request, answer: Answer) -> ClientError | None:
    """Return the error that an answer is, unless it is a success."""
    status = answer.status
    if status in NOT_NOW or status >= 500:
        return Unavailable(endpoint, status, _message(answer), _retry_after(answer))
    if status in (401, 403):
        return NotAllowed(endpoint, status, _message(answer))
    if status == 404:
        is_event = request.method == "POST" and named_versions(answer) is None
        return (NoSuchEvent if is_event else NoVersion)(endpoint, status, _message(answer))
    if 400 <= status < 500:
        return Refused(endpoint, status, _message(answer))
    if 200 <= status < 300 or (status == 304 and _is_conditional(request)):
        return None
    return NotUnderstood(endpoint, f"status {status}")


def etag_of(answer: Answer) -> str | None:
    """Return the name of the document, unless it could not be sent back in a header."""
    etag = answer.headers.get("etag", "").strip()
    return etag if 0 < len(etag) <= LONGEST_ETAG and etag.isascii() and etag.isprintable() else None


def offered_wait(answer: Answer, wanted: int) -> int:
    """Return for how many seconds the next answer may be held: none, unless the service offers it."""
    offer = _whole_number(answer.headers.get("forewarn-wait", ""))
    return 0 if offer is None else min(offer, wanted, MAX_WAIT)


def name_in(endpoint: str, answer: Answer) -> str:
    """Read the VM's resource name from its instance document."""
    try:
        whole = msgspec.json.decode(answer.body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(endpoint, f"the instance document is not JSON: {error}") from error
    compute = whole.get("compute") if isinstance(whole, dict) else None
    name = compute.get("name") if isinstance(compute, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise NoName(endpoint, "the instance document has no compute.name")
    return name.strip()


def _is_conditional(request: Request) -> bool:
    return any(name == "If-None-Match" for name, _ in request.headers)


def _retry_after(answer: Answer) -> float | None:
    seconds = _whole_number(answer.headers.get("retry-after", ""))
    return None if seconds is None else float(seconds)


def _whole_number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if 0 < len(digits) <= 9 and digits.isascii() and digits.isdigit() else None


def _message(answer: Answer) -> str:
    """Return the service's own sentence: what its JSON calls the error, else the beginning of the body."""
    text = _error_in(answer.body) or answer.body[:LONGEST_MESSAGE].decode(errors="replace")
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
