"""Types shared by all parts of the API: durations, moments, and how requests and responses treat unknown fields."""

import msgspec
import pytest

from forewarn.api.v1.common import Duration, ErrorResponse, Hold, Moment, Reason, Request, VmName
from forewarn.core.duration import parse_duration


class Ask(Request, frozen=True):
    duration: Duration = "1s"
    at: Moment | None = None
    reason: Reason = "x"
    vm: VmName = "v"


def ask(**fields: object) -> Ask:
    return msgspec.json.decode(msgspec.json.encode(fields), type=Ask)


@pytest.mark.parametrize("text", ["90s", "1h30m", "2d", "0.5s", "999999d999999h"])
def test_duration_is_accepted_as_the_core_reads_it(text: str) -> None:
    assert ask(duration=text).duration == text
    if text != "999999d999999h":
        parse_duration(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"duration": ""},
        {"duration": "s"},
        {"duration": "1h 30m"},
        {"duration": "-1h"},
        {"at": "2030-01-01T00:00:00"},
        {"reason": ""},
        {"reason": "x" * 513},
        {"vm": ""},
        {"vm": "v" * 258},
        {"unknown": 1},
    ],
    ids=str,
)
def test_request_with_a_wrong_or_unknown_field_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        ask(**fields)


def test_response_of_a_newer_service_is_read() -> None:
    """Fields may be added to responses."""
    body = b'{"error":{"code":"c","message":"m","added":1},"also":2}'
    error = msgspec.json.decode(body, type=ErrorResponse).error
    assert (error.code, error.message, error.details) == ("c", "m", {})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"scope":null}', type=Hold)
