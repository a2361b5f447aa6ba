"""Output streams: results to stdout as table or JSON, messages to stderr, control sequences sanitized."""

import os
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode


class Output(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


OWN_COLOUR_CODES = "|".join(("0", *(colour.value for colour in Colour)))
CONTROL_SEQUENCES = re.compile(
    rf"(\x1b\[(?:{OWN_COLOUR_CODES})m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal takes for a command instead of showing it, and, as a group, the commands that are ours."""


def sanitize(text: str) -> str:
    """Return a text in which nothing but our own colours commands a terminal: others have written what is in it."""
    return CONTROL_SEQUENCES.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", text)


def write_message(text: str) -> None:
    """Tell the user something that is no result."""
    sys.stderr.write(f"{sanitize(text)}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write a line of the result for people."""
    _write_line(sanitize(text))


def _write_line(text: str) -> None:
    write_bytes(f"{text}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict"))


def write_bytes(piece: bytes) -> None:
    """Write a piece of the result as it is."""
    try:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise CliError(ExitCode.FAILED, f"cannot write the result: {error.strerror or error}") from error


def ensure_streams() -> None:
    """Write to nowhere what would go to a stream that was closed before we began."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")


def discard_stdout() -> None:
    """Let the interpreter not complain at its end about what nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(value: Any) -> None:
    """Write the result for programs."""
    _write_line(msgspec.json.format(msgspec.json.encode(value)).decode())


def write_json_line(value: Any) -> None:
    """Write one of several results for programs, in a line."""
    _write_line(msgspec.json.encode(value).decode())


def moment_text(moment: datetime) -> str:
    """Write a moment for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
