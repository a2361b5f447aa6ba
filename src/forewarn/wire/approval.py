"""The body of an approval (StartRequests), encoded by clients and parsed by the endpoint (PROTOCOL §4)."""

from collections.abc import Iterable

import msgspec

from forewarn.core.text import is_guid, truncate_text
from forewarn.wire import error_responses
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.protocol import BYTE_ORDER_MARK


class _StartRequest(msgspec.Struct, rename="pascal"):
    event_id: str


class _StartRequests(msgspec.Struct, rename="pascal"):
    start_requests: list[_StartRequest]


def encode_approval(ids: Iterable[str]) -> bytes:
    """Return the body of a POST that approves events."""
    return msgspec.json.encode(_StartRequests([_StartRequest(id_) for id_ in ids]))


def parse_approval(body: bytes) -> tuple[str, ...] | ErrorResponse:
    """Parse the ids of a POST, each once, in upper case; ignore everything else in the body. Never raises."""
    try:
        decoded = msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return error_responses.invalid_body("the body is not JSON")
    if not isinstance(decoded, dict):
        return error_responses.invalid_body("the body is not a JSON object")
    if "StartRequests" not in decoded:
        return error_responses.invalid_body("the body has no StartRequests")
    entries = decoded["StartRequests"]
    if not isinstance(entries, list):
        return error_responses.invalid_body("StartRequests is not a list")
    return _event_ids(entries)


def _event_ids(entries: Iterable[object]) -> tuple[str, ...] | ErrorResponse:
    ids: dict[str, None] = {}
    for entry in entries:
        id_ = entry.get("EventId") if isinstance(entry, dict) else None
        if not isinstance(id_, str):
            return error_responses.invalid_body("an entry of StartRequests has no string EventId")
        if not is_guid(id_):
            return error_responses.invalid_body(
                f"EventId {truncate_text(id_, error_responses.MAX_ECHO_BYTES)} is not a GUID"
            )
        ids[id_.upper()] = None
    return tuple(ids)
