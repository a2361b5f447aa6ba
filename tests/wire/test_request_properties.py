"""Whatever a guest sends and a scope contains, the wire returns a response and never raises."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.core.event import Event, EventType, Source, State
from forewarn.wire.approval import encode_approval, parse_approval
from forewarn.wire.document import encode_document
from forewarn.wire.document_parser import Document, InvalidDocument, parse_document
from forewarn.wire.error_responses import INSTANCE_PATH_NOT_FOUND, ErrorResponse
from forewarn.wire.instance import encode_instance
from forewarn.wire.protocol import VERSIONS
from forewarn.wire.request import (
    ApprovalRequest,
    DocumentRequest,
    Format,
    InstanceRequest,
    RequestHead,
    VersionsRequest,
    route,
)
from tests.support.examples import examples
from tests.wire.samples import event, numbered_id, scope

ANSWERS = (DocumentRequest, ApprovalRequest, InstanceRequest, VersionsRequest, ErrorResponse)
# Text as a socket delivers it, with undecodable bytes, and pieces that lead deeper than random text would.
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
MARKS = ("/", "//", "?", "&", "=", "%", "%2", "%2f", "%ff", "%00", "#", ";", "http://")
WORDS = ("metadata", "scheduledevents", "instance", "versions", "compute", "network", "interface", "0")
PARAMETERS = ("api-version", "=2020-07-01", "wait=", "format=")
PIECES = st.sampled_from([*MARKS, *WORDS, *PARAMETERS])
TARGETS = st.one_of(
    TEXT,
    st.lists(PIECES | TEXT, max_size=12).map("".join),
    st.lists(PIECES | TEXT, max_size=8).map(
        lambda rest: "/metadata/scheduledevents?api-version=2020-07-01&" + "".join(rest)
    ),
    st.lists(PIECES | TEXT, max_size=8).map(lambda rest: "/metadata/instance/" + "".join(rest)),
)
NAMES = TEXT | st.sampled_from(["Metadata", "X-Forwarded-For", "If-None-Match"])
HEADERS = st.lists(st.tuples(NAMES, TEXT | st.just("true")), max_size=4)
METHODS = TEXT | st.sampled_from(["GET", "POST", "HEAD"])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(["StartRequests", "EventId", "Events", "NotBefore", "DurationInSeconds", "Resources"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
BODIES = st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | st.text().map(lambda text: text.encode())


@given(METHODS, TARGETS, HEADERS)
def test_every_head_gets_a_response(method: str, target: str, headers: list[tuple[str, str]]) -> None:
    answer = route(RequestHead(method, target, headers))
    assert isinstance(answer, ANSWERS)
    if isinstance(answer, ErrorResponse):
        assert "error" in json.loads(answer.body)


@given(st.lists(PIECES | TEXT, max_size=6), st.sampled_from(["json", "text"]))
def test_every_instance_path_gets_a_response(path: list[str], format_: Format) -> None:
    machine = scope()
    answer = encode_instance(machine, machine.roster.vms[0], InstanceRequest("2021-02-01", tuple(path), format_))
    assert answer == INSTANCE_PATH_NOT_FOUND or isinstance(answer, tuple)


@given(BODIES)
def test_every_body_gets_ids_or_a_refusal(body: bytes) -> None:
    answer = parse_approval(body)
    if isinstance(answer, ErrorResponse):
        assert list(json.loads(answer.body)) == ["error"]
    else:
        assert parse_approval(encode_approval(answer)) == answer


@given(BODIES)
def test_every_body_is_parsed_or_refused(body: bytes) -> None:
    try:
        read = parse_document(body)
    except InvalidDocument:
        return
    assert read is None or isinstance(read, Document)


@st.composite
def events(draw: st.DrawFn, id_: str) -> Event:
    names = st.lists(st.sampled_from(["web_0", "FrontEnd_IN_0", "gone"]), min_size=1, max_size=3, unique=True)
    vms = tuple(draw(names))
    return event(
        id=id_,
        type=draw(st.sampled_from(EventType)),
        state=draw(st.sampled_from([State.SCHEDULED, State.STARTED])),
        source=draw(st.sampled_from(Source)),
        vms=vms,
        role_instances=tuple(name for name in vms if name == "FrontEnd_IN_0"),
        not_before=draw(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),  # noqa: DTZ001
        duration=draw(st.none() | st.timedeltas(timedelta(0), timedelta(days=30))),
        description=draw(st.text(max_size=40)),
        announced=draw(st.booleans()),
    )


def expected(item: Event, version: str) -> dict[str, Any]:
    """Return the expected entry of an event, built without the encoder."""
    names = {"web_0": "_web_0", "FrontEnd_IN_0": "FrontEnd_IN_0", "gone": "_gone"}
    entry: dict[str, Any] = {
        "EventId": item.id,
        "EventStatus": str(item.state),
        "EventType": str(item.type),
        "ResourceType": "VirtualMachine",
        "Resources": [names[name] if version == "2017-03-01" else name for name in item.vms],
        "NotBefore": "",
    }
    if item.state is State.SCHEDULED:
        entry["NotBefore"] = item.not_before.strftime("%a, %d %b %Y %H:%M:%S GMT")
    if version >= "2019-04-01":
        entry["Description"] = item.description
    if version >= "2019-08-01":
        entry["EventSource"] = str(item.source)
    if version >= "2020-07-01":
        whole, rest = divmod(item.duration or timedelta(0), timedelta(seconds=1))
        unknown = 5 if item.type is EventType.FREEZE else -1
        entry["DurationInSeconds"] = unknown if item.duration is None else whole + (1 if rest else 0)
    return entry


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(VERSIONS), st.integers(0, 4), st.integers(1, 10**9))
def test_every_document_has_exactly_what_its_version_shows(
    data: st.DataObject, version: str, count: int, incarnation: int
) -> None:
    made = [data.draw(events(numbered_id(n))) for n in range(count)]
    of = scope(*made, incarnation=incarnation)
    hidden = {
        "Preempt": version < "2017-11-01",
        "Terminate": version < "2019-01-01",
        "SpotRebalanceRecommendation": version < "2024-07-09",
    }
    entries = [expected(item, version) for item in made if item.announced and not hidden.get(str(item.type), False)]
    body = encode_document(of, version)
    assert (
        body
        == json.dumps(
            {"DocumentIncarnation": incarnation, "Events": entries}, separators=(",", ":"), ensure_ascii=False
        ).encode()
    )
    read = parse_document(body)
    assert read is not None
    assert (read.incarnation, [item.id for item in read.events]) == (
        incarnation,
        [entry["EventId"] for entry in entries],
    )
