"""PROTOCOL §3: the document, field by field, encoded and parsed."""

import json
from datetime import timedelta
from typing import Any

import pytest

from forewarn.core.api_version import ApiVersion
from forewarn.core.errors import NotAnnounced
from forewarn.core.event import Cause, EventType, Source, State
from forewarn.core.policy import Policy, RuleContext
from forewarn.core.schedule import schedule, unannounced_reason
from forewarn.core.scope import Scope
from forewarn.core.vm import Priority, Traits
from forewarn.wire.document import encode_document, etag, etag_matches, has_events
from forewarn.wire.document_parser import Document, DocumentEvent, parse_document
from forewarn.wire.protocol import ALL_VERSIONS, NEWEST_VERSION, VERSIONS
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope
from tests.wire.samples import EVENT_ID, NOT_BEFORE, event, numbered_id, scope

ONE = (
    scope(event(description="…")),
    (
        b'{"DocumentIncarnation":2,"Events":[{"EventId":"602D9444-D2CD-49C7-8624-8643E7171297","EventStatus":"Scheduled",'
        b'"EventType":"Reboot","ResourceType":"VirtualMachine","Resources":["web_0"],'
        b'"NotBefore":"Mon, 19 Sep 2016 18:29:47 GMT","Description":"\xe2\x80\xa6","EventSource":"User",'
        b'"DurationInSeconds":-1}]}'
    ),
    Document(
        incarnation=2,
        events=(
            DocumentEvent(
                id=EVENT_ID,
                status=State.SCHEDULED,
                type=EventType.REBOOT,
                resource_type="VirtualMachine",
                resources=("web_0",),
                not_before=NOT_BEFORE,
                description="…",
                source=Source.USER,
                duration=None,
            ),
        ),
    ),
)
STARTED = (
    scope(
        event(
            state=State.STARTED,
            type=EventType.FREEZE,
            source=Source.PLATFORM,
            cause=Cause.MAINTENANCE,
            vms=("web_0", "web_1"),
            duration=timedelta(seconds=9),
            description="",
        ),
        incarnation=12,
    ),
    (
        b'{"DocumentIncarnation":12,"Events":[{"EventId":"602D9444-D2CD-49C7-8624-8643E7171297","EventStatus":"Started",'
        b'"EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["web_0","web_1"],"NotBefore":"",'
        b'"Description":"","EventSource":"Platform","DurationInSeconds":9}]}'
    ),
    Document(
        incarnation=12,
        events=(
            DocumentEvent(
                id=EVENT_ID,
                status=State.STARTED,
                type=EventType.FREEZE,
                resource_type="VirtualMachine",
                resources=("web_0", "web_1"),
                not_before=None,
                description="",
                source=Source.PLATFORM,
                duration=timedelta(seconds=9),
            ),
        ),
    ),
)
QUIET = (
    scope(incarnation=1),
    b'{"DocumentIncarnation":1,"Events":[]}',
    Document(incarnation=1, events=()),
)

BOTH_WAYS = pytest.mark.parametrize(
    ("of", "body", "read"), [ONE, STARTED, QUIET], ids=["the page's example", "started", "quiet"]
)


@BOTH_WAYS
def test_document_is_encoded(of: Scope, body: bytes, read: Document) -> None:
    assert encode_document(of, NEWEST_VERSION) == body


@BOTH_WAYS
def test_document_is_parsed(of: Scope, body: bytes, read: Document) -> None:
    assert parse_document(body) == read


def shown(**fields: Any) -> dict[str, Any]:
    """Return the only event of a document that is encoded from an event with these fields."""
    (entry,) = json.loads(encode_document(scope(event(**fields)), NEWEST_VERSION))["Events"]
    assert isinstance(entry, dict)
    return entry


def test_document_incarnation_is_the_scopes() -> None:
    assert json.loads(encode_document(scope(incarnation=77), NEWEST_VERSION)) == {
        "DocumentIncarnation": 77,
        "Events": [],
    }


def test_event_id_is_an_upper_case_guid() -> None:
    assert shown()["EventId"] == EVENT_ID == EVENT_ID.upper()


@pytest.mark.parametrize("state", [State.SCHEDULED, State.STARTED])
def test_event_status_is_scheduled_or_started(state: State) -> None:
    assert shown(state=state)["EventStatus"] == {State.SCHEDULED: "Scheduled", State.STARTED: "Started"}[state]


@pytest.mark.parametrize("name", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_event_type_is_one_of_five(name: str) -> None:
    assert shown(type=EventType(name))["EventType"] == name


def test_resource_type_is_always_virtual_machine() -> None:
    assert shown()["ResourceType"] == "VirtualMachine"


def test_resources_are_the_names_of_the_affected_vms_in_their_order() -> None:
    assert shown(vms=("web_1", "web_0"))["Resources"] == ["web_1", "web_0"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("state", "text"),
    [(State.SCHEDULED, "Mon, 19 Sep 2016 18:29:47 GMT"), (State.STARTED, "")],
    ids=["before", "once Started"],
)
def test_not_before_is_rfc_1123_and_empty_once_started(state: State, text: str, version: str) -> None:
    (entry,) = json.loads(encode_document(scope(event(state=state)), version))["Events"]
    assert entry["NotBefore"] == text


@pytest.mark.parametrize("text", ["", "Host maintenance.", 'ünï "quoted" \\ \n 再'])
def test_description_is_free_text(text: str) -> None:
    assert shown(description=text)["Description"] == text


@pytest.mark.parametrize(("source", "name"), [(Source.PLATFORM, "Platform"), (Source.USER, "User")])
def test_event_source_is_platform_or_user(source: Source, name: str) -> None:
    assert shown(source=source)["EventSource"] == name


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        pytest.param(None, -1, id="not known"),
        pytest.param(timedelta(0), 0, id="none"),
        pytest.param(timedelta(seconds=9), 9, id="whole"),
        pytest.param(timedelta(microseconds=1), 1, id="rounded up from almost 0"),
        pytest.param(timedelta(seconds=9, microseconds=1), 10, id="rounded up"),
        pytest.param(timedelta(days=400), 34_560_000, id="long"),
    ],
)
def test_duration_in_seconds_is_whole(duration: timedelta | None, seconds: int) -> None:
    value = shown(duration=duration)["DurationInSeconds"]
    assert (value, type(value)) == (seconds, int)


def test_events_keep_their_order() -> None:
    ids = [numbered_id(n) for n in (3, 1, 2)]
    entries = json.loads(encode_document(scope(*(event(id=id_) for id_ in ids)), NEWEST_VERSION))["Events"]
    assert [entry["EventId"] for entry in entries] == ids


@pytest.mark.parametrize("version", VERSIONS)
def test_unannounced_event_is_in_no_document(version: str) -> None:
    assert encode_document(scope(event(announced=False)), version) == b'{"DocumentIncarnation":2,"Events":[]}'


def test_etags_differ_by_epoch_incarnation_and_version() -> None:
    scopes = [scope(), scope(epoch="other"), scope(incarnation=3)]
    assert len({etag(one, version) for one in scopes for version in VERSIONS}) == 3 * len(VERSIONS)


CURRENT = etag(scope(), NEWEST_VERSION)


@pytest.mark.parametrize(
    "field",
    [CURRENT, f"W/{CURRENT}", f'"old", {CURRENT}', f" {CURRENT} ", "*"],
    ids=["same", "weak", "list", "space", "any"],
)
def test_etag_matches(field: str) -> None:
    assert etag_matches(field, CURRENT)


@pytest.mark.parametrize("field", ["", '""', "k3Jx9.2.2020-07-01", etag(scope(), "2019-08-01"), '"old", "older"', "**"])
def test_etag_does_not_match(field: str) -> None:
    assert not etag_matches(field, CURRENT)


@pytest.mark.parametrize("type_", EventType)
@pytest.mark.parametrize("version", [*ApiVersion, None])
def test_event_is_heard_of_if_a_document_of_the_polled_version_has_its_type(
    type_: EventType, version: ApiVersion | None
) -> None:
    """The rule agrees with the document that the VMs would get."""
    context = RuleContext(policy=Policy(allows_unreleased=True))
    polling = a_scope([a_vm("v0", traits=Traits(priority=Priority.LOW))], enabled=True)
    request = a_request("v0", type=type_, unannounced=True)
    after = saved_scope(schedule(polling, request, context, now=NOW, poll_version=version))
    is_shown = version is None or has_events(after, version)
    reason = unannounced_reason(polling, type_, context, version)
    assert (reason == "") is is_shown
    if reason:
        with pytest.raises(NotAnnounced, match=f"poll with api-version {version}, which has no {type_.value}"):
            schedule(polling, a_request("v0", type=type_), context, now=NOW, poll_version=version)


def test_freeze_of_unknown_duration_lasts_5_seconds_and_no_other_type_does() -> None:
    shown = {
        type_: json.loads(encode_document(scope(event(type=type_)), ALL_VERSIONS[-1]))["Events"][0]["DurationInSeconds"]
        for type_ in EventType
    }
    recommended = {EventType.SPOT_REBALANCE_RECOMMENDATION: 0}
    assert shown == dict.fromkeys(EventType, -1) | {EventType.FREEZE: 5} | recommended
