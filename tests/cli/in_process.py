"""Run a `forewarn` command in the process of the test: same arguments, environment and results, no start-up time."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from forewarn.cli.app import main
from tests.support.program import Machine


class CommandResult(NamedTuple):
    """How a command ended, and what it has said."""

    code: int
    stdout: str
    stderr: str


def run(machine: Machine, *arguments: str, stdin: str = "", **environment: str) -> CommandResult:
    """Run a command of this machine's user to its end."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    typed = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    before = Path.cwd()
    os.chdir(machine.home)
    try:
        with (
            patch.dict(os.environ, machine.environment | environment, clear=True),
            patch.multiple(sys, argv=["forewarn", *arguments], stdin=typed, stdout=stdout, stderr=stderr),
        ):
            code = _exit_code()
    finally:
        os.chdir(before)
    return CommandResult(code, *(_decoded(stream) for stream in (stdout, stderr)))


def run_json(machine: Machine, *arguments: str, **environment: str) -> Any:
    """Run a command that must succeed, and return what it says as JSON."""
    ended = run(machine, *arguments, "-o", "json", **environment)
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def run_table(machine: Machine, *arguments: str) -> list[list[str]]:
    """Run a command that must succeed, and return its table."""
    ended = run(machine, *arguments)
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    starts = [title.start() for title in re.finditer(r"\S+( \S+)*", lines[0])]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


def run_details(machine: Machine, *arguments: str) -> dict[str, str]:
    """Run a command that must succeed, and return what it tells about one thing."""
    ended = run(machine, *arguments)
    assert ended.code == 0, ended.stderr
    parted = (line.partition("  ") for line in ended.stdout.partition("\n\n")[0].splitlines())
    return {name: value.strip() for name, _, value in parted}


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _decoded(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
