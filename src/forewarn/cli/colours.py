"""Terminal colours (ANSI): used on a terminal unless NO_COLOR is set."""

import os
import sys
from enum import StrEnum


class Colour(StrEnum):
    """How something stands out, as a terminal is told."""

    BAD = "31"
    GOOD = "32"
    WARNING = "33"
    DIM = "2"


def is_coloured() -> bool:
    """Tell whether results are shown in colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: Colour | None) -> str:
    """Return the text in a colour, where results are shown in colours."""
    return f"\x1b[{colour.value}m{text}\x1b[0m" if colour is not None and is_coloured() else text
