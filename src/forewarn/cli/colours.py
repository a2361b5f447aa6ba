"""Colours, where a person looks: on a terminal that can, and unless NO_COLOR asks for none."""

import os
import sys
from enum import StrEnum


class Colour(StrEnum):
    """How something stands out, as a terminal is told."""

    BAD = "31"
    GOOD = "32"
    CAREFUL = "33"
    FAINT = "2"


def is_coloured() -> bool:
    """Tell whether results are shown in colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: Colour | None) -> str:
    """Return the text in a colour, where results are shown in colours."""
    return f"\x1b[{colour.value}m{text}\x1b[0m" if colour is not None and is_coloured() else text
