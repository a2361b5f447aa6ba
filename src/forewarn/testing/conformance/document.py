"""The document as it was found, whatever is wrong with it, and the two ways in which a row is not passed."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from forewarn.testing.conformance.talking import Answer
from forewarn.wire.protocol import BYTE_ORDER_MARK

Entry: TypeAlias = Mapping[str, Any]


def id_of(event: Entry) -> str:
    """Return what the event is called, whatever that is."""
    return str(event.get("EventId"))


class Otherwise(Exception):
    """The endpoint does not do as the rule says."""


class NotChecked(Exception):
    """Nothing can be said about the rule, here and now."""


class Document(msgspec.Struct, frozen=True):
    """A body that is an object with a list of objects called Events, whatever else is wrong with it."""

    body: bytes
    keys: tuple[str, ...]
    incarnation: object
    events: tuple[Entry, ...]

    def event(self, id_: str) -> Entry | None:
        """Return the event of an id, in any case."""
        return next((event for event in self.events if id_of(event).upper() == id_.upper()), None)


def read_json(body: bytes) -> object:
    """Read JSON; None for what is none."""
    try:
        return msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_document(answer: Answer) -> Document:
    """Take an answer for a document."""
    if answer.status != 200:
        raise NotChecked(f"there is no document: the answer is {answer}")
    if not answer.body.strip():
        raise NotChecked("there is no document: the answer is empty, as that of a service that is not enabled yet")
    whole = read_json(answer.body)
    if not isinstance(whole, dict) or not isinstance(whole.get("Events"), list):
        raise NotChecked("there is no document: the answer is no JSON object with a list of Events")
    if not all(isinstance(event, dict) for event in whole["Events"]):
        raise NotChecked("there is no document: an entry of Events is no object")
    return Document(answer.body, tuple(whole), whole.get("DocumentIncarnation"), tuple(whole["Events"]))
