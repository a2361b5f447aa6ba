"""What names and texts may look like, in one place."""

import re

from forewarn.core.errors import Invalid
from forewarn.core.limits import NAME_LENGTH, TEXT_LENGTH

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")
_GUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def check_name(name: str, what: str) -> None:
    """Refuse a name that could not stand in a path, a document or a shell word."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{what} {name!r}: use 1 to {NAME_LENGTH} letters, digits, '.', '_', '-', beginning with a letter or digit"
        )


def check_text(text: str, what: str) -> None:
    """Refuse a text that is too long to be kept in a record."""
    if len(text) > TEXT_LENGTH:
        raise Invalid(f"{what} has {len(text)} characters: at most {TEXT_LENGTH} are kept")


def is_guid(text: str) -> bool:
    """Tell whether the text is a GUID in its usual form, in any case."""
    return _GUID.fullmatch(text) is not None


def shortened(text: str, limit: int = TEXT_LENGTH) -> str:
    """Make a text from outside (a program's output, say) printable and cut it to `limit` bytes."""
    printable = "".join(char if char.isprintable() and char not in '"\\' else " " for char in text[:limit])
    encoded = printable.encode()
    return printable if len(encoded) <= limit else encoded[: limit - 3].decode(errors="ignore") + "…"
