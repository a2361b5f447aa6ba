"""Run a `forewarn` command in the process of the test: same arguments, environment and results, no start-up time.

Only `run_live` calls the program; the other functions use it. It cannot run a command that replaces its process
(`agent run`) or starts other programs, and cannot test signals and keys: such tests are marked `process`.
"""

import io
import json
import logging
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from forewarn.api.client import ApiClient
from forewarn.api.local_service import TOKEN_FILE, read_token
from forewarn.cli.app import main
from forewarn.compose import RunningService, run_service
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, PRODUCTION, Preset, Settings
from forewarn.settings.types import DEMONSTRATION
from forewarn.testing.background import BackgroundContext
from forewarn.testing.player import load_player
from tests.support.program import LOOPBACK, Machine
from tests.support.serve_process import FLEET, SETTINGS

Script = Generator[str, None, None]
"""Actions while a command runs: the script continues when the command has written the yielded text."""


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str


def run(machine: Machine, *arguments: str, stdin: str = "", **environment: str) -> CommandResult:
    """Run a command as this machine's user, and wait for its end."""
    return run_live(machine, *arguments, stdin=stdin, environment=environment)


def run_live(
    machine: Machine,
    *arguments: str,
    stdin: str = "",
    columns: int | None = None,
    script: Script | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> CommandResult:
    """Run a command while a script reacts to its output; with `columns`, on a terminal of that width.

    A terminal merges both streams into `stdout`.
    """
    with ExitStack() as stack:
        terminal = None if columns is None else stack.enter_context(_open_terminal(columns, stdin))
        reader = _ScriptReader(script)
        stdout = _OutputStream(reader, terminal)
        stderr = _OutputStream(reader, None) if terminal is None else stdout
        typed = io.TextIOWrapper(
            io.BytesIO(stdin.encode()) if terminal is None else os.fdopen(terminal, "rb", closefd=False),
            encoding="utf-8",
        )
        streams: dict[str, Any] = {"stdin": typed, "stdout": stdout.text, "stderr": stderr.text}
        kind = {}
        if terminal is not None:
            # The size of the terminal is read from these.
            streams |= {f"__{name}__": stream for name, stream in streams.items()}
            kind = {"TERM": "xterm"}
        stack.enter_context(_restored_process())
        os.chdir(machine.home)
        stack.enter_context(patch.dict(os.environ, {**machine.environment, **kind, **environment}, clear=True))
        stack.enter_context(patch.multiple(sys, argv=["forewarn", *arguments], **streams))
        code = _exit_code()
    reader.assert_is_over()
    return CommandResult(code, stdout.getvalue().decode(), "" if stderr is stdout else stderr.getvalue().decode())


def run_on_terminal(machine: Machine, *arguments: str, columns: int) -> list[str]:
    """Run a command that must succeed on a terminal of this width; return the displayed lines."""
    ended = run_live(machine, *arguments, columns=columns)
    assert ended.code == 0, ended.stdout
    return ended.stdout.splitlines()


def interrupt() -> None:
    """Interrupt the running command like Ctrl-C; for a script."""
    signal.raise_signal(signal.SIGINT)


def run_json(machine: Machine, *arguments: str, **environment: str) -> Any:
    """Run a command that must succeed, and return its JSON."""
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
    """Run a command that must succeed, and return its details view."""
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

    def run_on_terminal(self, *arguments: str, columns: int) -> list[str]:
        """Run a command that must succeed on a terminal of this width; return the displayed lines."""
        return run_on_terminal(self, *arguments, columns=columns)


class UpService:
    """A service in a thread, with the ready message of `forewarn up -o json`."""

    def __init__(self, running: RunningService) -> None:
        found = (
            (f"{view.id}/{vm.name}", running.guest_url(view.id, vm))
            for view in running.fleet.replica.views()
            for vm in view.roster or ()
        )
        self.running = running
        self.data = running.directory
        self.guest_urls = {vm: url for vm, url in found if url is not None}
        self.ready = {"operator_url": running.operator_url, "token_file": str(running.directory / TOKEN_FILE)}


class SilentReporter:
    """Collects the messages of the start."""

    def report(self, sentence: str) -> None: ...

    def fleet_file_ignored(self, source: Path) -> None: ...

    def fill_progress(self, done: int, total: int) -> None: ...


@contextmanager
def run_up(
    machine: Machine,
    *,
    fleet: Path | str = DEMONSTRATION,
    manual_time: bool = True,
    data: Path | None = None,
    file: Path | None = None,
    **environ: str,
) -> Iterator[UpService]:
    """Run the service in a thread of this process, as `forewarn up` would for the user of a machine.

    It is ephemeral if no data directory is given.
    """
    flags = {
        "manual_time": manual_time,
        "fleet": str(fleet),
        "listen": f"{LOOPBACK}:0",
        "operator": "127.0.0.1:0",
        **({"ephemeral": True} if data is None else {"data": str(data)}),
    }
    settings = load_settings(EMULATOR, flags=flags, environ=environ, file=file).settings
    with _service_in_thread(settings, EMULATOR, machine.environment) as running:
        yield UpService(running)


class ProductionService:
    """A service for real VMs in a thread."""

    def __init__(self, directory: Path, operator_url: str) -> None:
        self.directory = directory
        self.operator_url = operator_url

    @property
    def token(self) -> str:
        """The token of the data directory."""
        return read_token(self.directory / "data/token")

    @property
    def api(self) -> ApiClient:
        """A client with that token."""
        return ApiClient(self.operator_url, self.token)


@contextmanager
def run_production(directory: Path, settings: str = SETTINGS) -> Iterator[ProductionService]:
    """Run the service in a thread of this process, as `forewarn serve` would with this settings file."""
    (directory / "fleet.toml").write_text(FLEET)
    (directory / "forewarn.toml").write_text(settings)
    loaded = load_settings(PRODUCTION, flags={}, environ={}, file=directory / "forewarn.toml").settings
    with _service_in_thread(loaded, PRODUCTION, {"HOME": str(directory)}) as running:
        yield ProductionService(directory, running.operator_url)


@contextmanager
def _service_in_thread(settings: Settings, preset: Preset, environ: dict[str, str]) -> Iterator[RunningService]:
    service = BackgroundContext(
        lambda: run_service(
            settings,
            preset,
            environ=environ,
            reporter=SilentReporter(),
            load_player=load_player if preset is EMULATOR else None,
        ),
        name="service of a test",
    )
    running = service.start()
    try:
        yield running
    finally:
        service.stop()


class _ScriptReader:
    """Runs a script: continues it when the command has written the awaited text."""

    def __init__(self, script: Script | None) -> None:
        self._script = script
        self._wanted = None if script is None else next(script, None)
        self._unread = ""

    def read(self, said: str) -> None:
        """Receive output of the command; the script continues in the thread of the command."""
        self._unread += said
        while self._script is not None and self._wanted is not None and self._wanted in self._unread:
            assert threading.current_thread() is threading.main_thread(), "the script would run in another thread"
            self._unread = self._unread.partition(self._wanted)[2]
            self._wanted = next(self._script, None)

    def assert_is_over(self) -> None:
        """Fail if the command has ended and the script still waits."""
        assert self._wanted is None, f"the command ended before it wrote {self._wanted!r}, after {self._unread!r}"


class _OutputStream(io.BytesIO):
    """Collects output; with a terminal, it behaves like one."""

    def __init__(self, reader: _ScriptReader, terminal: int | None) -> None:
        super().__init__()
        self._reader, self._terminal = reader, terminal
        self.text = io.TextIOWrapper(self, encoding="utf-8", write_through=True)

    def write(self, piece: Any) -> int:
        """Collect the output and pass it to the script."""
        written = super().write(piece)
        self._reader.read(bytes(piece).decode(errors="replace"))
        return written

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._terminal is not None

    def fileno(self) -> int:
        """Return the terminal; other streams have no descriptor."""
        return super().fileno() if self._terminal is None else self._terminal


@contextmanager
def _open_terminal(columns: int, typed: str) -> Iterator[int]:
    """Open a pseudo-terminal with these keys already typed."""
    main_side, other = pty.openpty()
    try:
        termios.tcsetwinsize(other, (24, columns))
        os.write(main_side, typed.encode())
        yield other
    finally:
        os.close(other)
        os.close(main_side)


@contextmanager
def _restored_process() -> Iterator[None]:
    """Undo what a command changes in the process, which is that of the tests."""
    directory, switch_interval = Path.cwd(), sys.getswitchinterval()
    file_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    root = logging.getLogger()
    logs, level = root.handlers[:], root.level
    # Remove the log handlers of pytest: a command that configures logging would close them.
    root.handlers[:] = [logging.NullHandler()]
    try:
        yield
    finally:
        os.chdir(directory)
        sys.setswitchinterval(switch_interval)
        resource.setrlimit(resource.RLIMIT_NOFILE, file_limit)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        logging.captureWarnings(capture=False)
        root.handlers[:] = logs
        root.setLevel(level)


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
