"""Results go to stdout, as a table for people or as JSON for programs; everything else that is said goes to stderr."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec


class Output(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


def say(sentence: str) -> None:
    """Tell the user something that is no result."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write a line of the result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write the result for programs."""
    write(msgspec.json.format(msgspec.json.encode(value)).decode())


def moment_text(moment: datetime) -> str:
    """Write a moment for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
