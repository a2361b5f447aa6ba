"""The program under examination: begun as a VM, read until it ends, ended with everything that it has started."""

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
from forewarn.testing.exam.record import Ended

URL, FOLDER = "{url}", "{dir}"
"""What stands in the command for the endpoint's URL, and for the directory that each run has for itself."""

DIRECTORY_VARIABLE = "FOREWARN_EXAM_DIR"
SCENARIO_VARIABLE = "FOREWARN_EXAM_SCENARIO"
PREPARED_VARIABLE = "FOREWARN_EXAM_PREPARED"
RECOVERED_VARIABLE = "FOREWARN_EXAM_RECOVERED"

KEPT = 64 * 1024
"""How much of a program's output is kept, from its end."""

CHUNK = 8192
GRACE = 2.0
"""How many seconds a program has to end when it is told to."""


class NotBegun(Exception):
    """The command cannot be run at all."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How the program is run. It is told a URL, by a variable or in its command, or else has a sandbox."""

    command: Sequence[str]
    url_variable: str | None = None
    net: bool = False

    @property
    def is_told_url(self) -> bool:
        """Whether it needs no sandbox."""
        return self.url_variable is not None or any(URL in word for word in self.command)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run of it takes place. `socket` is the VM's, where it has a sandbox."""

    url: str
    host_name: str
    folder: Path
    environment: Mapping[str, str]
    socket: Path | None = None


class Running:
    """A program that was begun. Whatever it prints is read, and the end of it is kept."""

    def __init__(self, way: Way, place: Place, *, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._output: deque[bytes] = deque()
        self._size = 0
        self._is_told_to_end = threading.Event()
        self.ended: Ended | None = None
        """How it has ended, if it did so by itself."""
        self._has_sandbox = place.socket is not None
        self.began_at = time.monotonic()
        self._process = _begun(way, place)
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

    def end(self) -> None:
        """Have it end, and everything that it has started; return when it has."""
        self._is_told_to_end.set()
        # A sandbox passes it on; a program without one may have started others.
        self._process.terminate() if self._has_sandbox else self._signal_all(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(GRACE)

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
                while self._size - len(self._output[0]) > KEPT:
                    self._size -= len(self._output.popleft())

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._is_told_to_end.is_set():
            self._threads[0].join(GRACE)
            self.ended = Ended(code if code >= 0 else 128 - code, time.monotonic())
            self._on_end()


def _begun(way: Way, place: Place) -> "subprocess.Popen[bytes]":
    known = {URL: place.url, FOLDER: str(place.folder)}
    command = [_filled(word, known) for word in way.command]
    environment = {**os.environ, **place.environment, DIRECTORY_VARIABLE: str(place.folder)}
    if way.url_variable is not None:
        environment[way.url_variable] = place.url
    if place.socket is not None:
        command = sandbox.supervising(command, socket=place.socket, hostname=place.host_name, net=way.net)
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
        raise NotBegun(f"{command[0]} cannot be run: {error.strerror}") from error


def _filled(word: str, known: Mapping[str, str]) -> str:
    for said, meant in known.items():
        word = word.replace(said, meant)
    return word
