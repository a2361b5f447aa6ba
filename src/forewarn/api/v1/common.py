"""Types shared by all parts of the API: base structs, durations, times, texts, errors and holds."""

from datetime import datetime
from typing import Annotated

import msgspec

from forewarn.core.duration import DURATION_PATTERN
from forewarn.core.limits import MAX_TEXT_LENGTH
from forewarn.core.text import NAME_PATTERN, schema_pattern

__all__ = [
    "AFTER_HEADER",
    "LARGEST_PAGE",
    "PAGE",
    "POSITION_HEADER",
    "ErrorBody",
    "ErrorResponse",
    "Hold",
    "Request",
    "Response",
]

PAGE = 500
LARGEST_PAGE = 1_000

POSITION_HEADER = "Forewarn-Position"
"""The header of a response with the position of what the service had read and changed by then."""

AFTER_HEADER = "Forewarn-After"
"""The header of a request that any control node answers only when it has reached this position."""

Duration = Annotated[str, msgspec.Meta(pattern=DURATION_PATTERN, min_length=2, max_length=35)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_LENGTH)]
VmName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=257, extra_json_schema=schema_pattern(f"({NAME_PATTERN}/)?{NAME_PATTERN}")),
]
"""`scope/name`, or the bare name if it is unambiguous."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response of the service. Clients must ignore unknown fields, because fields may be added."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to the service, which refuses unknown fields."""


class ErrorBody(Response, frozen=True):
    """An error: a stable code, a message for users, and details."""

    code: str
    message: str
    details: dict[str, str | list[str]] = {}


class ErrorResponse(Response, frozen=True):
    """The body of every response with a status of 400 or more."""

    error: ErrorBody


class Hold(Response, frozen=True):
    """An operator's hold on planned maintenance. `scope` is null for a hold of the whole fleet."""

    scope: str | None
    created_by: str
    created_at: datetime
    reason: str
