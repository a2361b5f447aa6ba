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
    """Output formats."""

    TABLE = "table"
    JSON = "json"


OWN_COLOUR_CODES = "|".join(("0", *(colour.value for colour in Colour)))
CONTROL_SEQUENCES = re.compile(
    rf"(\x1b\[(?:{OWN_COLOUR_CODES})m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Terminal control sequences; the group matches our own colour codes."""


def sanitize(text: str) -> str:
    """Replace terminal control sequences, except our own colours, because the text may come from untrusted sources."""
    return CONTROL_SEQUENCES.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", text)


def write_message(text: str) -> None:
    """Write a message to stderr."""
    sys.stderr.write(f"{sanitize(text)}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write a line of text to stdout, sanitized."""
    _write_line(sanitize(text))


def _write_line(text: str) -> None:
    write_bytes(f"{text}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict"))


def write_bytes(piece: bytes) -> None:
    """Write bytes to stdout unchanged."""
    try:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise CliError(ExitCode.FAILED, f"cannot write the result: {error.strerror or error}") from error


def ensure_streams() -> None:
    """Redirect stdout and stderr to /dev/null if they were closed before the start."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")


def discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter does not report a write error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(value: Any) -> None:
    """Write the result as formatted JSON."""
    _write_line(msgspec.json.format(msgspec.json.encode(value)).decode())


def write_json_line(value: Any) -> None:
    """Write one result as a line of JSON."""
    _write_line(msgspec.json.encode(value).decode())


def moment_text(moment: datetime) -> str:
    """Format a time in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
