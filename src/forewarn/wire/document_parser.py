"""Parse a Scheduled Events document as a client: tolerant of other services, versions and their errors.

Unknown keys are ignored; unknown types and states are kept as plain text. Only a body that is not a document at all
raises.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.event import EventType, Source, State
from forewarn.wire.http_date import parse_date
from forewarn.wire.protocol import BYTE_ORDER_MARK

STATES = {state.value: state for state in (State.SCHEDULED, State.STARTED)}
TYPES = {type_.value: type_ for type_ in EventType}
SOURCES = {source.value: source for source in Source}


class InvalidDocument(BaseError, ValueError):
    """The body is not a Scheduled Events document; the message has the reason."""

    template = "{problem}"
    problem: str


class DocumentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a document. None means that the document does not have the field, `""` that the field is empty.

    `type`, `status` and `source` are members of their enums if these have the value, and plain text otherwise.
    """

    id: str
    status: State | str
    type: EventType | str
    resource_type: str
    resources: tuple[str, ...]
    not_before: datetime | None = None
    description: str | None = None
    source: Source | str | None = None
    duration: timedelta | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a GET of scheduledevents."""

    incarnation: int | None
    events: tuple[DocumentEvent, ...]


def parse_document(body: bytes) -> Document | None:
    """Parse the body of a 200; return None for an empty one, which the real service sends before it is enabled.

    Raises only InvalidDocument.
    """
    text = body.removeprefix(BYTE_ORDER_MARK).strip()
    if not text:
        return None
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(f"the body is not JSON: {error}") from error
    if not isinstance(whole, dict) or "Events" not in whole:
        raise InvalidDocument("the body is not a JSON object with Events")
    return Document(incarnation=_integer(whole.get("DocumentIncarnation")), events=_events(whole["Events"]))


def _events(entries: object) -> tuple[DocumentEvent, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise InvalidDocument("Events is not a list")
    return tuple(_event(entry) for entry in entries)


def _event(entry: object) -> DocumentEvent:
    """Parse one event. An event without an id could not be approved, so the whole document is invalid."""
    if not isinstance(entry, dict) or not isinstance(entry.get("EventId"), str):
        raise InvalidDocument("an entry of Events has no EventId")
    status, type_, source = (_text(entry, key) for key in ("EventStatus", "EventType", "EventSource"))
    return DocumentEvent(
        id=entry["EventId"],
        status=STATES.get(status or "", status or ""),
        type=TYPES.get(type_ or "", type_ or ""),
        resource_type=_text(entry, "ResourceType") or "",
        resources=_names(entry.get("Resources")),
        not_before=parse_date(_text(entry, "NotBefore") or ""),
        description=_text(entry, "Description"),
        source=SOURCES.get(source or "", source),
        duration=_duration(entry.get("DurationInSeconds")),
    )


def _text(entry: Mapping[str, object], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _integer(value: object) -> int | None:
    """Parse a number or its text: old services and clients write the incarnation in both forms."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _duration(value: object) -> timedelta | None:
    seconds = _integer(value)
    if seconds is None or seconds < 0:
        return None
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        return None
