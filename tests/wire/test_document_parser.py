"""Tolerant parsing: documents of every service, and a clear error for other bodies."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.core.event import EventType, Source, State
from forewarn.wire.document import encode_document
from forewarn.wire.document_parser import Document, DocumentEvent, InvalidDocument, parse_document
from tests.wire.samples import EVENT_ID, NOT_BEFORE, event, scope

BARE = DocumentEvent(id="E1", status="", type="", resource_type="", resources=())


def read_one(**entry: Any) -> DocumentEvent:
    """Parse a document with one event that has these fields and an id."""
    body = json.dumps({"DocumentIncarnation": 1, "Events": [{"EventId": "E1"} | entry]}).encode()
    found = parse_document(body)
    assert found is not None
    return found.events[0]


@pytest.mark.parametrize("body", [b"", b" \r\n", b"\xef\xbb\xbf"], ids=["empty", "blank", "byte order mark"])
def test_empty_body_means_that_the_service_is_not_enabled_yet(body: bytes) -> None:
    assert parse_document(body) is None


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("2017-03-01", {"resources": ("_web_0",)}),
        ("2017-08-01", {}),
        ("2017-11-01", {}),
        ("2019-01-01", {}),
        ("2019-04-01", {"description": "A user asked for a restart of the VM."}),
        ("2019-08-01", {"description": "A user asked for a restart of the VM.", "source": Source.USER}),
        (
            "2020-07-01",
            {
                "description": "A user asked for a restart of the VM.",
                "source": Source.USER,
                "duration": timedelta(seconds=9),
            },
        ),
    ],
)
def test_document_of_every_version_is_parsed(version: str, known: dict[str, Any]) -> None:
    usual: dict[str, Any] = {
        "id": EVENT_ID,
        "status": State.SCHEDULED,
        "type": EventType.REBOOT,
        "resource_type": "VirtualMachine",
        "resources": ("web_0",),
        "not_before": NOT_BEFORE,
    }
    made = encode_document(scope(event(duration=timedelta(seconds=9))), version)
    assert parse_document(made) == Document(incarnation=2, events=(DocumentEvent(**(usual | known)),))


def test_event_needs_only_its_id() -> None:
    assert read_one() == BARE


def test_unknown_keys_are_ignored() -> None:
    assert read_one(Colour="red", Nested={"x": [1]}) == BARE


def test_wrong_types_count_as_missing() -> None:
    wrong = {"EventStatus": 1, "EventType": [], "ResourceType": {}, "Resources": "web_0", "NotBefore": 7}
    assert read_one(**wrong, Description=1, EventSource=2, DurationInSeconds=[]) == BARE


def test_nulls_count_as_missing() -> None:
    keys = ("EventStatus", "EventType", "ResourceType", "Resources", "NotBefore", "Description", "EventSource")
    assert read_one(**dict.fromkeys(keys), DurationInSeconds=None) == BARE


def test_unknown_enum_values_are_kept_as_text() -> None:
    read = read_one(EventType="Levitate", EventStatus="Paused", EventSource="Nature")
    assert (read.type, read.status, read.source) == ("Levitate", "Paused", "Nature")


def test_known_enum_values_are_members() -> None:
    read = read_one(EventType="Freeze", EventStatus="Started", EventSource="Platform")
    assert (type(read.type), type(read.status), type(read.source)) == (EventType, State, Source)


def test_internal_states_are_unknown_in_documents() -> None:
    assert type(read_one(EventStatus="gone").status) is str


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Mon, 19 Sep 2016 18:29:47 GMT", NOT_BEFORE),
        ("2016-09-19T18:29:47Z", NOT_BEFORE),
        ("2022-04-11T22:26:58", datetime(2022, 4, 11, 22, 26, 58, tzinfo=UTC)),
        ("", None),
        ("soon", None),
    ],
    ids=["RFC 1123", "ISO 8601", "ISO 8601 without zone", "empty", "nonsense"],
)
def test_not_before_is_parsed_in_every_form(text: str, moment: datetime | None) -> None:
    assert read_one(NotBefore=text).not_before == moment


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (9, timedelta(seconds=9)),
        ("9", timedelta(seconds=9)),
        (0, timedelta(0)),
        (-1, None),
        (10**30, None),
        (True, None),
    ],
)
def test_duration_is_known_from_zero_on(value: object, duration: timedelta | None) -> None:
    assert read_one(DurationInSeconds=value).duration == duration


@pytest.mark.parametrize(
    ("value", "incarnation"), [(b"3", 3), (b'"3"', 3), (b"3.0", 3), (b"null", None), (b'"x"', None), (b"{}", None)]
)
def test_incarnation_may_be_number_or_text(value: bytes, incarnation: int | None) -> None:
    read = parse_document(b'{"Events":[],"DocumentIncarnation":%b}' % value)
    assert read == Document(incarnation=incarnation, events=())


def test_null_events_are_an_empty_list() -> None:
    assert parse_document(b'{"DocumentIncarnation":1,"Events":null}') == Document(incarnation=1, events=())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "not JSON"),
        (b'{"Events":[', "not JSON"),
        (b'{"Events":["\xff"]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object with Events"),
        (b'{"error":"x"}', "not a JSON object with Events"),
        (b'{"Events":{}}', "Events is not a list"),
        (b'{"Events":[7]}', "no EventId"),
        (b'{"Events":[{}]}', "no EventId"),
        (b'{"Events":[{"EventId":7}]}', "no EventId"),
    ],
    ids=["page", "cut off", "no UTF-8", "very deep", "list", "no Events", "no list", "no object", "no id", "no text"],
)
def test_body_that_is_not_a_document_is_refused_with_a_reason(body: bytes, why: str) -> None:
    with pytest.raises(InvalidDocument, match=why):
        parse_document(body)
