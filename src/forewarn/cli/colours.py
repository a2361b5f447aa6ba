"""Terminal colours (ANSI): used on a terminal unless NO_COLOR is set."""

import os
import sys
from enum import StrEnum


class Colour(StrEnum):
    """ANSI codes of the colours, named by their meaning."""

    BAD = "31"
    GOOD = "32"
    WARNING = "33"
    DIM = "2"


def is_coloured() -> bool:
    """Return whether output is coloured."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: Colour | None) -> str:
    """Return the text in a colour if output is coloured, else unchanged."""
    return f"\x1b[{colour.value}m{text}\x1b[0m" if colour is not None and is_coloured() else text
