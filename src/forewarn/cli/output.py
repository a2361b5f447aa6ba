"""Results go to stdout, as a table for people or as JSON for programs; everything else that is said goes to stderr."""

import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from forewarn.cli.exits import Exit, Stop


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
    write_bytes(f"{text}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict"))


def write_bytes(piece: bytes) -> None:
    """Write a piece of the result as it is."""
    try:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_stdout()
        raise Stop(Exit.FAILED, f"cannot write the result: {error.strerror or error}") from error


def have_streams() -> None:
    """Write to nowhere what would go to a stream that was closed before we began."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")


def forget_stdout() -> None:
    """Let the interpreter not complain at its end about what nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(value: Any) -> None:
    """Write the result for programs."""
    write(msgspec.json.format(msgspec.json.encode(value)).decode())


def moment_text(moment: datetime) -> str:
    """Write a moment for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
