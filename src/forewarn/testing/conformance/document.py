"""The events document as an endpoint returned it, however malformed, and the exceptions Mismatch and CheckSkipped."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from forewarn.testing.conformance.raw_http import Response
from forewarn.wire.protocol import BYTE_ORDER_MARK

EventFields: TypeAlias = Mapping[str, Any]


def event_id(event: EventFields) -> str:
    """Return what the event is called, whatever that is."""
    return str(event.get("EventId"))


class Mismatch(Exception):
    """The endpoint does not do as the rule says."""


class CheckSkipped(Exception):
    """Nothing can be said about the rule, here and now."""


class Document(msgspec.Struct, frozen=True):
    """A body that is an object with a list of objects called Events, whatever else is wrong with it."""

    body: bytes
    keys: tuple[str, ...]
    incarnation: object
    events: tuple[EventFields, ...]

    def event(self, id_: str) -> EventFields | None:
        """Return the event of an id, in any case."""
        return next((event for event in self.events if event_id(event).upper() == id_.upper()), None)


def read_json(body: bytes) -> object:
    """Read JSON; None for what is none."""
    try:
        return msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_document(response: Response) -> Document:
    """Take an answer for a document."""
    if response.status != 200:
        raise CheckSkipped(f"there is no document: the answer is {response}")
    if not response.body.strip():
        raise CheckSkipped("there is no document: the answer is empty, as that of a service that is not enabled yet")
    content = read_json(response.body)
    if not isinstance(content, dict) or not isinstance(content.get("Events"), list):
        raise CheckSkipped("there is no document: the answer is no JSON object with a list of Events")
    if not all(isinstance(event, dict) for event in content["Events"]):
        raise CheckSkipped("there is no document: an entry of Events is no object")
    return Document(response.body, tuple(content), content.get("DocumentIncarnation"), tuple(content["Events"]))
