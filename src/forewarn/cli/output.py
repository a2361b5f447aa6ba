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
from forewarn.core.text import CONTROL_CLASS, escape_control, escape_json


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


OWN_COLOUR_CODES = "|".join(("0", *(colour.value for colour in Colour)))
CONTROL_SEQUENCES = re.compile(rf"(\x1b\[(?:{OWN_COLOUR_CODES})m)|{CONTROL_CLASS}")
"""Line ends and terminal control sequences; the group matches our own colour codes."""


def sanitize(text: str) -> str:
    """Return the text on one line. Control characters, except our own colours, are escaped: the text may be hostile."""
    return CONTROL_SEQUENCES.sub(lambda found: found[1] or escape_control(found[0]), text)


def write_message(text: str) -> None:
    """Write a message to stderr, on one line."""
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
    _write_line(escape_json(msgspec.json.format(msgspec.json.encode(value)).decode()))


def write_json_line(value: Any) -> None:
    """Write one result as a line of JSON."""
    _write_line(escape_json(msgspec.json.encode(value).decode()))


ISO_TIMES = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")


def uniform_times(text: str) -> str:
    """Write times of the journal's facts like all others on the terminal."""
    return ISO_TIMES.sub(r"\1 \2Z", text)


def moment_text(moment: datetime) -> str:
    """Format a time in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
