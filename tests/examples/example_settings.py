"""Settings of the examples with the paths and addresses of the test."""

from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def example_settings(example: str, places: Mapping[str, str]) -> str:
    """Return an example's settings with paths and addresses replaced; fail if one of them is not in the file."""
    text = (EXAMPLES / example / "agent.toml").read_text(encoding="utf-8")
    for shown, real in places.items():
        assert shown in text, f"{example}/agent.toml has no {shown}"
        text = text.replace(shown, real)
    return text
