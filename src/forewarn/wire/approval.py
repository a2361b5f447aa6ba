"""The body of an approval, as a client sends it (PROTOCOL §4); `request.start_requests` reads it."""

from collections.abc import Iterable

import msgspec


class _StartRequest(msgspec.Struct, rename="pascal"):
    event_id: str


class _StartRequests(msgspec.Struct, rename="pascal"):
    start_requests: list[_StartRequest]


def approval(ids: Iterable[str]) -> bytes:
    """Make the body of a POST that approves events."""
    return msgspec.json.encode(_StartRequests([_StartRequest(id_) for id_ in ids]))
