"""Faulty responses: the error responses, and what becomes of a document."""

import msgspec
import pytest

from forewarn.core.fault import STATUSES, FaultKind
from forewarn.wire.error_responses import TOO_MANY_REQUESTS, ErrorReason
from forewarn.wire.fault_responses import BODY_FAULTS, ERROR_RESPONSES, EXTRA_FIELD, UNKNOWN_EVENT_TYPE, fault_response

EVENTS = [{"EventId": "E1", "EventType": "Reboot"}, {"EventId": "E2", "EventType": "Freeze"}]
DOCUMENT = msgspec.json.encode({"DocumentIncarnation": 7, "Events": EVENTS})
EMPTY = msgspec.json.encode({"DocumentIncarnation": 1, "Events": []})


def test_fault_with_a_status_is_an_error_response_of_that_status() -> None:
    found = {kind: response for kind in FaultKind if (response := fault_response(kind)) is not None}
    assert {kind: response.status for kind, response in found.items()} == STATUSES
    assert {response.reason for response in found.values()} == {ErrorReason.FAULT}


def test_rate_limit_of_a_fault_looks_like_the_real_one() -> None:
    """Only the reason in our own log tells them apart."""
    assert msgspec.structs.replace(ERROR_RESPONSES[429], reason=TOO_MANY_REQUESTS.reason) == TOO_MANY_REQUESTS


def test_empty_body_is_empty() -> None:
    assert BODY_FAULTS[FaultKind.EMPTY_BODY](DOCUMENT) == b""


@pytest.mark.parametrize("document", [DOCUMENT, EMPTY])
def test_truncated_body_is_the_beginning_of_the_document_and_no_json(document: bytes) -> None:
    body = BODY_FAULTS[FaultKind.TRUNCATED](document)
    assert document.startswith(body)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body)


def test_wrong_content_type_leaves_the_document_as_it_is() -> None:
    assert BODY_FAULTS[FaultKind.WRONG_CONTENT_TYPE](DOCUMENT) == DOCUMENT


def test_unknown_event_type_replaces_that_of_each_event() -> None:
    change = BODY_FAULTS[FaultKind.UNKNOWN_EVENT_TYPE]
    assert msgspec.json.decode(change(DOCUMENT)) == {
        "DocumentIncarnation": 7,
        "Events": [{**event, "EventType": UNKNOWN_EVENT_TYPE} for event in EVENTS],
    }
    assert change(EMPTY) == EMPTY


def test_extra_field_is_the_last_of_the_document_and_of_each_event() -> None:
    name, value = EXTRA_FIELD
    changed = msgspec.json.decode(BODY_FAULTS[FaultKind.EXTRA_FIELD](DOCUMENT))
    assert changed == {
        "DocumentIncarnation": 7,
        "Events": [{**event, name: value} for event in EVENTS],
        name: value,
    }
    assert [list(part)[-1] for part in (changed, *changed["Events"])] == [name] * 3


def test_every_fault_is_either_an_error_response_or_a_body_or_a_matter_of_time_and_connection() -> None:
    others = {FaultKind.SLOW, FaultKind.HANG, FaultKind.RESET, FaultKind.LATE_FIRST_ANSWER, FaultKind.WRONG_DATE}
    assert {*STATUSES, *BODY_FAULTS, *others} == {*FaultKind}
