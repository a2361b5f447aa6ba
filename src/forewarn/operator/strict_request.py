"""Strict JSON request bodies: decoded to exactly the handler's type, without lenient conversions."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from operator import getitem
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import ValidationException

from forewarn.core.duration import DURATION_PATTERN, parse_duration
from forewarn.core.errors import Invalid
from forewarn.operator.decode_errors import plain_message, with_choices

DURATION_ERROR = re.compile(
    rf"Expected `str` (matching regex {re.escape(repr(DURATION_PATTERN))}|of length (>= 2|<= 35))"
    r" - at `\$\.(?P<path>\w+(\.\w+)*)`"
)
"""The decoder's message about an invalid duration: no other type has this pattern and these lengths."""


DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoding: invalid JSON, a wrong type, or too deep nesting."""


def to_utc(moment: datetime, name: str) -> datetime:
    """Convert a time to UTC; refuse times that this moves beyond the calendar."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{name} {moment.isoformat()} is outside the range of UTC") from None


class StrictRequest(Request[Any, Any, Any]):
    """A request whose JSON body is decoded strictly to the handler's type: 1 is not true, and "null" is a string."""

    async def json(self) -> Any:
        """Return the body as the handler's type."""
        field = self.route_handler.parsed_data_field
        type_ = Any if field is None else field.annotation
        body = await self.body()
        try:
            return msgspec.json.decode(body, type=type_)
        except DECODE_ERRORS as error:
            with suppress(*DECODE_ERRORS):
                return msgspec.convert(_decode_integral_floats(body), type=type_)
            message = with_choices(plain_message(str(error)), type_)
            detail = _duration_message(error, body) or f"{message} (see /openapi.json)"
            raise ValidationException(detail) from error


_decode_integral_floats = msgspec.json.Decoder(float_hook=lambda text: _integral(float(text))).decode
"""Decodes JSON in which 7.0 counts as an integer."""


def _integral(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _duration_message(error: Exception, body: bytes) -> str | None:
    """Return the core's message about an invalid duration, which is clearer than the pattern in the decoder's."""
    found = DURATION_ERROR.fullmatch(str(error))
    if found is None:
        return None
    path = found["path"]
    try:
        parse_duration(reduce(getitem, path.split("."), msgspec.json.decode(body)))
    except Invalid as invalid:
        return f"{path}: {invalid}"
    except DECODE_ERRORS:  # the body has another error after the duration
        return None
    return None
