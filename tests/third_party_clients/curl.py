"""Run curl, and parse the responses."""

import itertools
import subprocess
from email.parser import BytesHeaderParser
from pathlib import Path

import msgspec

from tests.support.emulator import GUARD, plain_environment


class Answer(msgspec.Struct, frozen=True):
    """A response, with header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    continued: bool
    """Whether the server sent `100 Continue`."""
    connects: int
    """The number of connections opened for it."""
    seconds: float


class Figures(msgspec.Struct, frozen=True):
    """The statistics that curl prints."""

    http_code: int
    num_connects: int
    time_total: float


class Running:
    """A running curl that writes headers and bodies to files."""

    def __init__(self, command: list[str], files: list[tuple[Path, Path]], environ: dict[str, str]) -> None:
        self._files = files
        self._process = subprocess.Popen(
            command, env=plain_environment(**environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self) -> tuple[int, str]:
        """Wait until it exits; return its exit status and output."""
        output, complaint = self._process.communicate(timeout=GUARD)
        return self._process.returncode, output or complaint

    def answers(self) -> list[Answer]:
        """Wait until it exits, and return the responses."""
        status, output = self.finish()
        assert status == 0, f"curl ended with {status}: {output}"
        figures = [msgspec.json.decode(line, type=Figures) for line in output.splitlines()]
        return [_answer(*files, each) for files, each in zip(self._files, figures, strict=True)]


def _answer(head: Path, body: Path, figures: Figures) -> Answer:
    *interim, final = head.read_bytes().strip().split(b"\r\n\r\n")
    _, _, lines = final.partition(b"\r\n")
    headers = {name.lower(): value for name, value in BytesHeaderParser().parsebytes(lines).items()}
    content = body.read_bytes() if body.exists() else b""
    continued = interim == [b"HTTP/1.1 100 Continue"]
    return Answer(figures.http_code, headers, content, continued, figures.num_connects, figures.time_total)


class Curl:
    """Calls curl, through the wrapper command `within` if given."""

    def __init__(self, directory: Path, *within: str) -> None:
        self._directory = directory
        self._within = within
        self._number = itertools.count()

    def __call__(self, *arguments: str, **environ: str) -> Answer:
        """Make one request."""
        (answer,) = self.start(arguments, **environ).answers()
        return answer

    def start(self, *requests: tuple[str, ...], **environ: str) -> Running:
        """Start curl with several requests, one after the other, on one connection if possible."""
        command = [*self._within, "curl", "-q"]
        files = []
        for arguments in requests:
            head, body = (self._directory / f"{next(self._number)}.{part}" for part in ("head", "body"))
            files.append((head, body))
            saving = ("--dump-header", str(head), "--output", str(body), "--write-out", r"%{json}\n")
            command += [*(["--next"] if len(files) > 1 else []), "--silent", "--show-error", *saving, *arguments]
        return Running(command, files, environ)
