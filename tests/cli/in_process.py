"""Run a `forewarn` command in the process of the test: same arguments, environment and results, no start-up time."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from forewarn.api.local_service import TOKEN_FILE
from forewarn.cli.app import main
from forewarn.compose import RunningService, run_service
from forewarn.settings import DEMONSTRATION, EMULATOR, load_settings
from forewarn.testing.background import BackgroundContext
from tests.support.program import LOOPBACK, Machine


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


class InProcessMachine(Machine):
    """A machine whose commands run in the process of the test."""

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        ended = run(self, *arguments, **environment)
        return subprocess.CompletedProcess(arguments, ended.code, ended.stdout, ended.stderr)


class UpService:
    """A service in a thread, with what `forewarn up -o json` says when it is ready."""

    def __init__(self, running: RunningService) -> None:
        found = (
            (f"{view.id}/{vm.name}", running.guest_url(view.id, vm))
            for view in running.fleet.replica.views()
            for vm in view.roster or ()
        )
        self.guest_urls = {vm: url for vm, url in found if url is not None}
        self.ready = {"operator_url": running.operator_url, "token_file": str(running.directory / TOKEN_FILE)}


class SilentReporter:
    """Takes what a service reports while it starts."""

    def report(self, sentence: str) -> None: ...

    def fleet_file_ignored(self, source: Path) -> None: ...

    def fill_progress(self, done: int, total: int) -> None: ...


@contextmanager
def run_up(machine: Machine, *, fleet: Path | str = DEMONSTRATION, manual_time: bool = True) -> Iterator[UpService]:
    """Run the service in a thread of this process, as `forewarn up --ephemeral` would for the user of a machine."""
    flags = {
        "ephemeral": True,
        "manual_time": manual_time,
        "fleet": str(fleet),
        "listen": f"{LOOPBACK}:0",
        "operator": "127.0.0.1:0",
    }
    settings = load_settings(EMULATOR, flags=flags, environ={}).settings
    service = BackgroundContext(
        lambda: run_service(settings, EMULATOR, environ=machine.environment, reporter=SilentReporter()),
        name="service of a test",
    )
    up = UpService(service.start())
    try:
        yield up
    finally:
        service.stop()


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
