"""Validation and truncation of names and texts."""

import re
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH, MAX_OUTPUT_BYTES, MAX_TEXT_LENGTH

NAME_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}"
KEY_CHARACTER = r"[!#-\[\]-~]"
GUID_PATTERN = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"


def schema_pattern(pattern: str) -> dict[str, str]:
    """Return the JSON schema of a pattern that a rule checks, for the `extra_json_schema` of a type.

    The decoder does not check it, so that a caller gets the message of the rule and not one about an expression.
    """
    return {"pattern": f"^({pattern})$"}


Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        extra={"is_name": True},
        extra_json_schema=schema_pattern(NAME_PATTERN),
    ),
]
"""A name. `check_name` checks the rest of the rule."""

Guid = Annotated[str, Meta(max_length=36, extra={"is_guid": True}, extra_json_schema=schema_pattern(GUID_PATTERN))]
"""A GUID, in any case. `check_guid` checks the rest of the rule."""

Text = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
"""A text such as a description or a reason."""

_NAME = re.compile(NAME_PATTERN)
_KEY = re.compile(rf"{KEY_CHARACTER}{{1,{MAX_KEY_LENGTH}}}")
_GUID = re.compile(GUID_PATTERN)


def check_name(name: str, what: str = "", *, field: str = "") -> None:
    """Refuse a name that cannot be used in a path, a document or a shell word.

    Messages call it `what`, which is not needed if they name the field.
    """
    if not _NAME.fullmatch(name):
        subject = f"{what} {name!r}" if what else repr(name)
        raise Invalid(
            f"{subject}: use 1 to {MAX_NAME_LENGTH} letters, digits, '.', '_', '-', beginning with a letter or digit",
            field,
        )


def check_text(text: str, what: str = "", limit: int = MAX_TEXT_LENGTH, *, field: str = "") -> None:
    """Refuse a text that is too long for a record, or not valid Unicode. For `what` see `check_name`."""
    if len(text) > limit:
        subject = f"{what} has " if what else ""
        raise Invalid(f"{subject}{len(text)} characters: at most {limit} are allowed", field)
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise Invalid(f"{what or 'the text'} is not valid Unicode: it contains an unpaired surrogate", field)


def check_key(key: str) -> None:
    """Refuse an idempotency key that could need more room in a record than is reserved for it."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            f"a request key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters without spaces, quotes or '\\'"
        )


def is_guid(text: str) -> bool:
    """Return whether the text is a GUID in its usual form, in any case."""
    return _GUID.fullmatch(text) is not None


def check_guid(text: str, *, field: str) -> None:
    """Refuse a text that is not a GUID."""
    if not is_guid(text):
        raise Invalid(f"{text!r} is not a GUID", field)


def truncate_text(text: str, limit: int = MAX_TEXT_LENGTH) -> str:
    """Make an external text (such as a program's output) printable and cut it to `limit` bytes."""
    cut = text[:limit]
    if cut.isascii() and cut.isprintable() and '"' not in cut and "\\" not in cut:
        return cut
    printable = "".join(char if char.isprintable() and char not in '"\\' else " " for char in cut)
    encoded = printable.encode()
    return printable if len(encoded) <= limit else encoded[: limit - 3].decode(errors="ignore") + "…"


def tail_text(text: str, limit: int = MAX_OUTPUT_BYTES) -> str:
    """Make a program's output printable, line by line, and keep its end, at most `limit` bytes."""
    lines = (
        "".join(char if char.isprintable() else " " for char in line).rstrip() for line in text[-limit:].splitlines()
    )
    encoded = "\n".join(lines).strip("\n").encode(errors="replace")
    return encoded.decode() if len(encoded) <= limit else "…" + encoded[3 - limit :].decode(errors="ignore")


CONTROL_CLASS = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""A regular expression for what could end a line, control a terminal or turn the direction of text around."""

_CONTROL = re.compile(CONTROL_CLASS)
_JSON_CONTROL = re.compile(CONTROL_CLASS.replace(r"\x00-\x1f", ""))


def escape_controls(text: str) -> str:
    r"""Return the text on one line, with control characters as escape sequences: `\n`, `\x1b`, `\u202e`."""
    return _CONTROL.sub(lambda found: escape_control(found[0]), text)


def escape_control(char: str) -> str:
    """Return the escape sequence of one character."""
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def escape_json(text: str) -> str:
    r"""Return JSON of the same value without control characters: encoders escape only those below U+0020."""
    return _JSON_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def join_choices(words: Iterable[str]) -> str:
    """Format a choice: a, b or c."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def describe_range(least: int | str | None, most: int | str | None) -> str:
    """Format which values are allowed: 1 to 100, at least 1, or at most 100."""
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"


def count_text(number: int, what: str) -> str:
    """Return a number with its noun, in the plural if needed: 1 VM, 2 VMs."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def natural_sort_key(name: str) -> tuple[list[str | int], str]:
    """Return a key that sorts names as people count: web-2 before web-10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name.casefold())], name
