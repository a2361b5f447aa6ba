"""The document as an endpoint returned it, even if malformed, and the exceptions Mismatch and CheckSkipped."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.testing.conformance.raw_http import Response
from forewarn.wire.protocol import BYTE_ORDER_MARK

EventFields: TypeAlias = Mapping[str, Any]


def event_id(event: EventFields) -> str:
    """Return the event's id as text, even if it is malformed."""
    return str(event.get("EventId"))


def is_similar(event: EventFields, other: EventFields) -> bool:
    """Return whether two events with different ids may be the same event."""
    return all(event.get(key) == other.get(key) for key in ("EventType", "Resources", "Description"))


class Mismatch(BaseError):
    """The endpoint does not follow the rule."""

    template = "{problem}"
    problem: str


class CheckSkipped(BaseError):
    """The rule could not be checked."""

    template = "{problem}"
    problem: str


class Document(msgspec.Struct, frozen=True):
    """A body that is an object with a list `Events` of objects; everything else may be malformed."""

    body: bytes
    keys: tuple[str, ...]
    incarnation: object
    events: tuple[EventFields, ...]

    def event(self, id_: str) -> EventFields | None:
        """Return the event with this id, ignoring case."""
        return next((event for event in self.events if event_id(event).upper() == id_.upper()), None)


def read_json(body: bytes) -> object:
    """Decode JSON; return None if it is invalid."""
    try:
        return msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_document(response: Response) -> Document:
    """Read a response as a document; raise CheckSkipped if it is not one."""
    if response.status != 200:
        raise CheckSkipped(f"no document: the response is {response}")
    if not response.body.strip():
        raise CheckSkipped("no document: the response is empty, as before Scheduled Events is enabled")
    content = read_json(response.body)
    if not isinstance(content, dict) or not isinstance(content.get("Events"), list):
        raise CheckSkipped("no document: the response is not a JSON object with a list Events")
    if not all(isinstance(event, dict) for event in content["Events"]):
        raise CheckSkipped("no document: an entry of Events is not an object")
    return Document(response.body, tuple(content), content.get("DocumentIncarnation"), tuple(content["Events"]))
