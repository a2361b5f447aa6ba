"""The handler's process: launch it (in a sandbox unless it gets a URL), capture its output, stop it with all its
children.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.process import OutputFile, Process
from forewarn.testing import sandbox
from forewarn.testing.exam.trace import ProcessExit

URL_PLACEHOLDER, DIRECTORY_PLACEHOLDER = "{url}", "{dir}"
"""Placeholders in the command, for the endpoint's URL and for the run's own directory."""

DIRECTORY_VARIABLE = "FOREWARN_EXAM_DIR"
SCENARIO_VARIABLE = "FOREWARN_EXAM_SCENARIO"
PREPARED_VARIABLE = "FOREWARN_EXAM_PREPARED"
RECOVERED_VARIABLE = "FOREWARN_EXAM_RECOVERED"

STOP_TIMEOUT = 2.0
"""How many seconds a program has to end after SIGTERM, before SIGKILL."""


class LaunchFailed(BaseError):
    """The command cannot be started."""

    template = "{problem}"
    problem: str


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the program: with a URL, in a variable or in its command, or without one in a sandbox.

    With an `interval`, the program is started again this many seconds after its last start, as cron and timers do.
    """

    command: Sequence[str]
    url_variable: str | None = None
    net: bool = False
    reach: Sequence[int] = ()
    interval: float | None = None

    @property
    def receives_url(self) -> bool:
        """Whether the program gets the endpoint's URL, and so needs no sandbox."""
        return self.url_variable is not None or any(URL_PLACEHOLDER in argument for argument in self.command)


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of one run. `socket` is the VM's socket if the program runs in a sandbox."""

    url: str
    host_name: str
    directory: Path
    environment: Mapping[str, str]
    socket: Path | None = None


class HandlerProcess:
    """A program that was started. The end of its output is kept.

    With an interval, it is started again and again: it has ended by itself only if its exit code is not 0.
    """

    def __init__(self, options: LaunchOptions, context: LaunchContext, *, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._options, self._context = options, context
        self._lock = threading.Lock()
        self.runs = 1
        """How many times it was started."""
        self._is_stopping = threading.Event()
        self.exit_status: ProcessExit | None = None
        """Set if the program ended by itself."""
        self._has_sandbox = context.socket is not None
        self._last_output: str | None = None
        self.began_at = time.monotonic()
        with ExitStack() as stack:
            self._file = stack.enter_context(OutputFile.unnamed())
            self._process = _launch(options, context, self._file)
            self._files = stack.pop_all()
        self._watcher = threading.Thread(target=self._watch, name="forewarn-exam-end", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process id of the program, or of its sandbox."""
        return self._process.pid

    @property
    def output(self) -> str:
        """The end of the program's output."""
        return self._file.text if self._last_output is None else self._last_output

    def stop(self) -> None:
        """Stop the program and all its children, and wait until it has ended."""
        if self._last_output is not None:
            return
        with self._lock:
            self._is_stopping.set()
        # A sandbox forwards the signal to its children; without a sandbox, send it to the whole session.
        self._process.signal(signal.SIGTERM, is_for_all=not self._has_sandbox)
        self._watcher.join(STOP_TIMEOUT)
        self._process.signal(signal.SIGKILL)
        self._watcher.join()
        self._last_output = self._file.text
        self._files.close()

    def _watch(self) -> None:
        started_at = self.began_at
        code = asyncio.run(self._process.wait())
        while self._options.interval is not None and code == 0:
            next_at = started_at + self._options.interval
            if self._is_stopping.wait(max(0.0, next_at - time.monotonic())):
                return
            with self._lock:
                if self._is_stopping.is_set():
                    return
                self._process = _launch(self._options, self._context, self._file)
            self.runs, started_at = self.runs + 1, time.monotonic()
            code = asyncio.run(self._process.wait())
        if not self._is_stopping.is_set():
            self.exit_status = ProcessExit(_shell_code(code), time.monotonic())
            self._on_end()


def _shell_code(code: int | None) -> int:
    """Return the exit code as a shell does: 128 plus the signal number if a signal ended the program."""
    return 0 if code is None else code if code >= 0 else 128 - code


def _launch(options: LaunchOptions, context: LaunchContext, output: OutputFile) -> Process:
    placeholders = {URL_PLACEHOLDER: context.url, DIRECTORY_PLACEHOLDER: str(context.directory)}
    command = [_fill_placeholders(argument, placeholders) for argument in options.command]
    environment = {**os.environ, **context.environment, DIRECTORY_VARIABLE: str(context.directory)}
    if options.url_variable is not None:
        environment[options.url_variable] = context.url
    if context.socket is not None:
        command = sandbox.supervisor_command(
            command, socket=context.socket, hostname=context.host_name, net=options.net, reach=options.reach
        )
    try:
        return Process.start(command, environment, None, output, output)
    except OSError as error:
        raise LaunchFailed(f"cannot run {command[0]}: {error.strerror}") from error


def _fill_placeholders(argument: str, placeholders: Mapping[str, str]) -> str:
    for placeholder, value in placeholders.items():
        argument = argument.replace(placeholder, value)
    return argument
