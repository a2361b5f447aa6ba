"""Wrong answers, made on purpose: what clients must survive. Right ones: see `document` and `answers`."""

from collections.abc import Callable

import msgspec

from forewarn.core.fault import STATUSES, FaultKind
from forewarn.wire.answers import TOO_MANY_REQUESTS, Reason, Refusal, refuse

HTML = "text/html; charset=utf-8"

UNKNOWN_TYPE = "Hibernate"
"""An event type that no version has."""

EXTRA_FIELD = ("AddedLater", "a field that no version has")

REFUSALS = {
    410: refuse(410, Reason.FAULT, "Gone: the service is being updated, try again within 70 seconds"),
    429: msgspec.structs.replace(TOO_MANY_REQUESTS, reason=Reason.FAULT),
    500: refuse(500, Reason.FAULT, "Internal server error: try again"),
}

_encode = msgspec.json.Encoder().encode


def refused_by(kind: FaultKind) -> Refusal | None:
    """Return the refusal that a fault is, if it is one."""
    return REFUSALS[STATUSES[kind]] if kind in STATUSES else None


def empty(_: bytes) -> bytes:
    """Return no document at all, as the real service does at times before it is enabled (PROTOCOL §3)."""
    return b""


def truncated(document: bytes) -> bytes:
    """Return the first half of a document, which is no JSON; its length, told on its own, is right."""
    return document[: len(document) // 2]


def with_unknown_type(document: bytes) -> bytes:
    """Return the document with a type that nobody knows in place of each event's own."""
    said = msgspec.json.decode(document)
    for event in said["Events"]:
        event["EventType"] = UNKNOWN_TYPE
    return _encode(said)


def with_extra_field(document: bytes) -> bytes:
    """Return the document with a field more, in itself and in each event, behind those that belong there."""
    name, value = EXTRA_FIELD
    said = msgspec.json.decode(document)
    for part in (said, *said["Events"]):
        part[name] = value
    return _encode(said)


BODIES: dict[FaultKind, Callable[[bytes], bytes]] = {
    FaultKind.EMPTY_BODY: empty,
    FaultKind.TRUNCATED: truncated,
    FaultKind.WRONG_CONTENT_TYPE: bytes,
    FaultKind.UNKNOWN_EVENT_TYPE: with_unknown_type,
    FaultKind.EXTRA_FIELD: with_extra_field,
}
"""What becomes of a document under the faults that concern documents."""
