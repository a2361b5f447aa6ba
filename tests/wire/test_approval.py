"""PROTOCOL §4: the body of an approval, encoded and parsed, and errors of invalid ones."""

import json

import pytest

from forewarn.wire.approval import encode_approval, parse_approval
from forewarn.wire.error_responses import ErrorReason, ErrorResponse
from tests.wire.samples import EVENT_ID, numbered_id

OTHER = numbered_id(7)


@pytest.mark.parametrize(
    ("ids", "body"),
    [
        pytest.param((), b'{"StartRequests":[]}', id="none"),
        pytest.param(
            (EVENT_ID,), b'{"StartRequests":[{"EventId":"602D9444-D2CD-49C7-8624-8643E7171297"}]}', id="one event"
        ),
        pytest.param(
            (EVENT_ID, OTHER),
            b'{"StartRequests":[{"EventId":"602D9444-D2CD-49C7-8624-8643E7171297"},'
            b'{"EventId":"00000007-0000-4000-8000-000000000000"}]}',
            id="several events",
        ),
    ],
)
def test_approval_is_encoded_and_parsed(ids: tuple[str, ...], body: bytes) -> None:
    assert encode_approval(ids) == body
    assert parse_approval(body) == ids


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b' {\n "StartRequests" : [ {"EventId":"%b"} ] } ', id="spaces"),
        pytest.param(b'\xef\xbb\xbf{"StartRequests":[{"EventId":"%b"}]}', id="byte order mark"),
        pytest.param(b'{"StartRequests":[{"EventId":"%b","Reason":1}],"x":[{}]}', id="more keys"),
    ],
)
def test_approval_in_other_forms_is_parsed(body: bytes) -> None:
    assert parse_approval(body % EVENT_ID.encode()) == (EVENT_ID,)


def test_ids_are_parsed_in_any_case() -> None:
    assert parse_approval(encode_approval([EVENT_ID.lower()])) == (EVENT_ID,)


def test_same_id_twice_counts_once() -> None:
    assert parse_approval(encode_approval([EVENT_ID, OTHER, EVENT_ID.lower()])) == (EVENT_ID, OTHER)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(b"", "the body is not JSON", id="empty"),
        pytest.param(b"StartRequests=1", "the body is not JSON", id="no JSON"),
        pytest.param(b'{"StartRequests":[]', "the body is not JSON", id="cut off"),
        pytest.param(b'{"StartRequests":[]}{}', "the body is not JSON", id="two objects"),
        pytest.param(b'{"StartRequests":["\xff"]}', "the body is not JSON", id="no UTF-8"),
        pytest.param('{"StartRequests":[]}'.encode("utf-16"), "the body is not JSON", id="UTF-16"),
        pytest.param(b"[" * 60_000, "the body is not JSON", id="very deep"),
        pytest.param(b'{"StartRequests":' + b'{"a":' * 10_000, "the body is not JSON", id="very deep inside"),
        pytest.param(b"9" * 60_000, "the body is not JSON", id="very large number"),
        pytest.param(b"[]", "the body is not a JSON object", id="list"),
        pytest.param(b"null", "the body is not a JSON object", id="null"),
        pytest.param(b"{}", "the body has no StartRequests", id="empty object"),
        pytest.param(b'{"startrequests":[]}', "the body has no StartRequests", id="name in another case"),
        pytest.param(b'{"StartRequests":null}', "StartRequests is not a list", id="null list"),
        pytest.param(b'{"StartRequests":{"EventId":"x"}}', "StartRequests is not a list", id="object for a list"),
        *(
            pytest.param(
                b'{"StartRequests":[%b]}' % entry, "an entry of StartRequests has no string EventId", id=entry.decode()
            )
            for entry in (b"{}", b"null", b'"x"', b"[]", b'{"EventId":null}', b'{"EventId":1}', b'{"eventid":"x"}')
        ),
        pytest.param(b'{"StartRequests":[{"EventId":""}]}', "EventId  is not a GUID", id="empty id"),
        pytest.param(b'{"StartRequests":[{"EventId":"all"}]}', "EventId all is not a GUID", id="no GUID"),
    ],
)
def test_malformed_body_is_refused_with_a_reason(body: bytes, why: str) -> None:
    answer = parse_approval(body)
    assert isinstance(answer, ErrorResponse)
    assert (answer.status, answer.reason, json.loads(answer.body)) == (
        400,
        ErrorReason.BODY,
        {"error": f"Bad request: {why}"},
    )


def test_one_malformed_id_refuses_all() -> None:
    answer = parse_approval(encode_approval([EVENT_ID, "x", OTHER]))
    assert isinstance(answer, ErrorResponse)
    assert answer.reason is ErrorReason.BODY


def test_refusal_repeats_little_of_the_request() -> None:
    answer = parse_approval(encode_approval(["y" * 60_000]))
    assert isinstance(answer, ErrorResponse)
    assert len(answer.body) < 200
