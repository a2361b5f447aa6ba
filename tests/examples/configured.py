"""Examples as they are, but for the places of a test's own machine."""

from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def configured(example: str, places: Mapping[str, str]) -> str:
    """Return an example's settings with other places; each of them has to be in the file, or the test would lie."""
    text = (EXAMPLES / example / "agent.toml").read_text(encoding="utf-8")
    for shown, real in places.items():
        assert shown in text, f"{example}/agent.toml has no {shown}"
        text = text.replace(shown, real)
    return text
