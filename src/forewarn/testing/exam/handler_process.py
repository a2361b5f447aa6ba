"""The handler's process: launch it (in a sandbox unless it gets a URL), capture its output, stop it with all its
children.
"""

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from forewarn.testing import sandbox
from forewarn.testing.exam.trace import ProcessExit

URL_PLACEHOLDER, DIRECTORY_PLACEHOLDER = "{url}", "{dir}"
"""What stands in the command for the endpoint's URL, and for the directory that each run has for itself."""

DIRECTORY_VARIABLE = "FOREWARN_EXAM_DIR"
SCENARIO_VARIABLE = "FOREWARN_EXAM_SCENARIO"
PREPARED_VARIABLE = "FOREWARN_EXAM_PREPARED"
RECOVERED_VARIABLE = "FOREWARN_EXAM_RECOVERED"

MAX_OUTPUT_BYTES = 64 * 1024
"""How much of a program's output is kept, from its end."""

CHUNK = 8192
STOP_TIMEOUT = 2.0
"""How many seconds a program has to end when it is told to."""


class LaunchFailed(Exception):
    """The command cannot be run at all."""


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the program is run. It is told a URL, by a variable or in its command, or else has a sandbox."""

    command: Sequence[str]
    url_variable: str | None = None
    net: bool = False

    @property
    def receives_url(self) -> bool:
        """Whether it needs no sandbox."""
        return self.url_variable is not None or any(URL_PLACEHOLDER in argument for argument in self.command)


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run of it takes place. `socket` is the VM's, where it has a sandbox."""

    url: str
    host_name: str
    directory: Path
    environment: Mapping[str, str]
    socket: Path | None = None


class HandlerProcess:
    """A program that was begun. Whatever it prints is read, and the end of it is kept."""

    def __init__(self, options: LaunchOptions, context: LaunchContext, *, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._output: deque[bytes] = deque()
        self._size = 0
        self._is_stopping = threading.Event()
        self.exit_status: ProcessExit | None = None
        """How it has ended, if it did so by itself."""
        self._has_sandbox = context.socket is not None
        self.began_at = time.monotonic()
        self._process = _launch(options, context)
        self._threads = [
            threading.Thread(target=self._read, name="forewarn-exam-output", daemon=True),
            threading.Thread(target=self._watch, name="forewarn-exam-end", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def output(self) -> str:
        """The last of what it has printed."""
        return b"".join(list(self._output)).decode(errors="replace")

    def stop(self) -> None:
        """Have it end, and everything that it has started; return when it has."""
        self._is_stopping.set()
        # A sandbox passes it on; a program without one may have started others.
        self._process.terminate() if self._has_sandbox else self._signal_all(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT)
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT)

    def _signal_all(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        stream: IO[bytes] | None = self._process.stdout
        if stream is None:
            return
        with stream:
            while chunk := stream.read1(CHUNK) if hasattr(stream, "read1") else stream.read(CHUNK):
                self._output.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._output[0]) > MAX_OUTPUT_BYTES:
                    self._size -= len(self._output.popleft())

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._is_stopping.is_set():
            self._threads[0].join(STOP_TIMEOUT)
            self.exit_status = ProcessExit(code if code >= 0 else 128 - code, time.monotonic())
            self._on_end()


def _launch(options: LaunchOptions, context: LaunchContext) -> "subprocess.Popen[bytes]":
    placeholders = {URL_PLACEHOLDER: context.url, DIRECTORY_PLACEHOLDER: str(context.directory)}
    command = [_fill_placeholders(argument, placeholders) for argument in options.command]
    environment = {**os.environ, **context.environment, DIRECTORY_VARIABLE: str(context.directory)}
    if options.url_variable is not None:
        environment[options.url_variable] = context.url
    if context.socket is not None:
        command = sandbox.supervisor_command(
            command, socket=context.socket, hostname=context.host_name, net=options.net
        )
    try:
        return subprocess.Popen(  # noqa: S603 - this is what it is for
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(f"{command[0]} cannot be run: {error.strerror}") from error


def _fill_placeholders(argument: str, placeholders: Mapping[str, str]) -> str:
    for placeholder, value in placeholders.items():
        argument = argument.replace(placeholder, value)
    return argument
