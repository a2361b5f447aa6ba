"""Validation and truncation of names and texts."""

import re
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH, MAX_OUTPUT_BYTES, MAX_TEXT_LENGTH

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, extra={"is_name": True})]
"""A name. `check_name` checks the rest of the rule."""

Text = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
"""A text such as a description or a reason."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
_KEY = re.compile(rf"[!#-\[\]-~]{{1,{MAX_KEY_LENGTH}}}")
_GUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def check_name(name: str, what: str) -> None:
    """Refuse a name that cannot be used in a path, a document or a shell word."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{what} {name!r}: use 1 to {MAX_NAME_LENGTH} letters, digits, '.', '_', '-', "
            "beginning with a letter or digit"
        )


def check_text(text: str, what: str) -> None:
    """Refuse a text that is too long for a record, or not valid Unicode."""
    if len(text) > MAX_TEXT_LENGTH:
        raise Invalid(f"{what} has {len(text)} characters: at most {MAX_TEXT_LENGTH} are allowed")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise Invalid(f"{what} is not valid Unicode: it contains an unpaired surrogate")


def check_key(key: str) -> None:
    """Refuse an idempotency key that could need more room in a record than is reserved for it."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            f"a request key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters without spaces, quotes or '\\'"
        )


def is_guid(text: str) -> bool:
    """Return whether the text is a GUID in its usual form, in any case."""
    return _GUID.fullmatch(text) is not None


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


def join_choices(words: Iterable[str]) -> str:
    """Format a choice: a, b or c."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def natural_sort_key(name: str) -> tuple[list[str | int], str]:
    """Return a key that sorts names as people count: web-2 before web-10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name.casefold())], name
