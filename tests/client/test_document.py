"""Documents and events as client values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from forewarn.client import Document, Event, EventType, Source, Status, deputy, is_deputy, is_leader, leader
from forewarn.client.document import read_document
from tests.client.scripted_flow import ID, document, event

NOW = datetime(2016, 9, 19, 18, 0, tzinfo=UTC)
IN_HALF_AN_HOUR = datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)


def read(**more: Any) -> Event:
    """Return an event parsed from a document with these fields."""
    found = read_document(document(event() | more))
    assert found is not None
    return found.events[0]


def test_document_with_all_fields_is_parsed() -> None:
    body = document(event(DurationInSeconds=9, Description="host maintenance"), incarnation=2)
    assert read_document(body) == Document(
        incarnation=2,
        events=(
            Event(
                id=ID,
                status=Status.SCHEDULED,
                type=EventType.REBOOT,
                resources=("web_0",),
                not_before=IN_HALF_AN_HOUR,
                description="host maintenance",
                source=Source.PLATFORM,
                duration=timedelta(seconds=9),
                resource_type="VirtualMachine",
            ),
        ),
    )


def test_document_of_the_first_api_version_has_fewer_fields() -> None:
    body = msgspec.json.encode({"DocumentIncarnation": 1, "Events": [{"EventId": ID, "EventStatus": "Started"}]})
    found = read_document(body)
    assert found is not None
    assert found.events == (Event(id=ID, status=Status.STARTED, type="", resources=(), resource_type=""),)


@pytest.mark.parametrize("field", ["status", "type", "source"])
def test_unknown_values_are_kept_as_text(field: str) -> None:
    found = read(EventStatus="Paused", EventType="Teleport", EventSource="Moon", Colour="blue")
    assert (found.status, found.type, found.source) == ("Paused", "Teleport", "Moon")
    assert type(getattr(found, field)) is str


def test_known_values_compare_equal_to_their_text() -> None:
    assert (read().type == "Reboot", read().type is EventType.REBOOT) == (True, True)
    assert (read().status == "Scheduled", read().status is Status.SCHEDULED) == (True, True)


@pytest.mark.parametrize(
    ("written", "deadline"),
    [
        pytest.param("Mon, 19 Sep 2016 18:29:47 GMT", IN_HALF_AN_HOUR, id="rfc-1123"),
        pytest.param("2016-09-19T18:29:47Z", IN_HALF_AN_HOUR, id="iso"),
        pytest.param("2016-09-19T20:29:47+02:00", IN_HALF_AN_HOUR, id="iso-with-offset"),
        pytest.param("2016-09-19T18:29:47", IN_HALF_AN_HOUR, id="iso-without-zone"),
        pytest.param("Mon, 01 Jan 0001 00:00:00 GMT", None, id="unset-in-dotnet"),
        pytest.param("0001-01-01T00:00:00", None, id="unset-in-dotnet-iso"),
        pytest.param("", None, id="empty"),
        pytest.param("soon", None, id="unparsable"),
        pytest.param(None, None, id="null"),
        pytest.param(17, None, id="number"),
    ],
)
def test_deadline_is_not_before(written: object, deadline: datetime | None) -> None:
    assert read(NotBefore=written).deadline == deadline


@pytest.mark.parametrize(
    ("told", "left"),
    [
        pytest.param({}, timedelta(minutes=29, seconds=47), id="scheduled"),
        pytest.param({"NotBefore": "Mon, 19 Sep 2016 17:00:00 GMT"}, timedelta(0), id="overdue"),
        pytest.param({"NotBefore": "soon"}, None, id="unparsable"),
        pytest.param({"EventStatus": "Started", "NotBefore": ""}, timedelta(0), id="started"),
        pytest.param({"EventStatus": "Started"}, timedelta(0), id="started-with-a-moment"),
    ],
)
def test_time_left_to_prepare(told: dict[str, object], left: timedelta | None) -> None:
    assert read(**told).time_left(NOW) == left


def test_started_event_has_no_deadline() -> None:
    assert read(EventStatus="Started").deadline is None


@pytest.mark.parametrize(("seconds", "interrupts"), [(-1, True), (0, False), (9, True), (None, True)])
def test_duration_of_zero_interrupts_nothing(seconds: int | None, interrupts: bool) -> None:
    assert read(DurationInSeconds=seconds).interrupts is interrupts


@pytest.mark.parametrize("resource", ["web_0", "_web_0", "WEB_0"])
@pytest.mark.parametrize("name", ["web_0", "_web_0", "Web_0"])
def test_event_affects_a_vm_by_name_with_and_without_underscore(resource: str, name: str) -> None:
    assert read(Resources=["other", resource]).affects(name)


@pytest.mark.parametrize("name", ["web_", "web_00", "0", "", "__web_0", "web"])
def test_event_does_not_affect_other_vms(name: str) -> None:
    assert not read(Resources=["web_0"]).affects(name)


def test_affecting_keeps_only_the_events_of_one_vm() -> None:
    both = read_document(document(event(ID, "Scheduled", "a", "b"), event("other", "Scheduled", "b")))
    assert both is not None
    assert [found.id for found in both.affecting("A").events] == [ID]


def test_later_event_with_the_same_id_wins() -> None:
    found = read_document(document(event(), event(ID.lower(), "Started")))
    assert found is not None
    assert [(one.id, one.status) for one in found.events] == [(ID.lower(), "Started")]


@pytest.mark.parametrize(
    ("resources", "first", "second"),
    [((), None, None), (("a",), "a", None), (("_a", "b"), "_a", "b"), (("a", "b", "c"), "a", "b")],
)
def test_leader_is_first_and_deputy_second(resources: tuple[str, ...], first: str | None, second: str | None) -> None:
    found = read(Resources=resources)
    assert (leader(found), deputy(found)) == (first, second)
    assert [is_leader(found, name) for name in ("A", "b", "c")] == [first is not None, False, False]
    assert [is_deputy(found, name) for name in ("a", "B", "c")] == [False, second is not None, False]


def test_models_are_frozen_and_hashable() -> None:
    found = read()
    with pytest.raises(AttributeError):
        found.id = "another"  # type: ignore[misc]  # the assignment must raise
    assert len({found, read()}) == 1
