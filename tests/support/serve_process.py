"""A `forewarn serve` process with a settings file; tests follow its JSON log."""

import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, Self
from urllib.parse import urlsplit

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from tests.support.program import GUARD, LOOPBACK, PROGRAM

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"

FLEET = """
[[scopes]]
name = "db"
kind = "standalone"

[[scopes]]
name = "web"
kind = "availability-set"
vms = [{ name = "web-0", host = "hv-0" }, { name = "web-1", host = "hv-1", update_domain = 1 }]
"""

SETTINGS = f"""
data = "data"
fleet = "fleet.toml"
operator = "127.0.0.1:0"
listen = "{LOOPBACK}:0"
platform = "simulated"
"""


class ServeProcess:
    """A started service and its log."""

    def __init__(self, directory: Path, environ: Mapping[str, str], within: Sequence[str]) -> None:
        self.directory = directory
        self.log: list[dict[str, Any]] = []
        self.text = ""
        self._lines: Queue[str | None] = Queue()
        self.process = subprocess.Popen(
            [*within, PROGRAM, "serve"],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for the caller, which ends its processes in order
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, message: str) -> dict[str, Any]:
        """Return the next log record whose message starts with this; skipped records are in `log`."""
        while (line := self._lines.get(timeout=GUARD)) is not None:
            record: dict[str, Any] = self._record(line)
            self.log.append(record)
            if record["message"].startswith(message):
                return record
        raise AssertionError(f"it never logged {message!r}: {self.text}")

    def new_records(self) -> list[dict[str, Any]]:
        """Return the log records that have arrived since, without waiting."""
        found: list[dict[str, Any]] = []
        while not self._lines.empty():
            if (line := self._lines.get()) is None:
                self._lines.put(None)
                break
            found.append(self._record(line))
        self.log += found
        return found

    def ready(self) -> Self:
        """Wait until it is ready."""
        self.operator_url: str = self.wait_for("ready")["operator_url"]
        return self

    @property
    def api(self) -> ApiClient:
        """A client with the token of the data directory."""
        return ApiClient(self.operator_url, read_token(self.directory / "data/token"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait until it exits, and return the exit status."""
        self.process.send_signal(number)
        return self.wait_for_exit()

    def wait_for_exit(self) -> int:
        """Wait until it exits; `log` then has all records."""
        code = self.process.wait(GUARD)
        self._reader.join(GUARD)
        while (line := self._lines.get(timeout=GUARD)) is not None:
            self.log.append(self._record(line))
        return code

    def messages(self) -> list[str]:
        """Return the messages of the log records read so far."""
        return [record["message"] for record in self.log]

    def _record(self, line: str) -> dict[str, Any]:
        """Parse a line of the log; a line that is not JSON is part of a traceback."""
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            self.process.wait(GUARD)
            self._reader.join(GUARD)
            raise AssertionError(f"not a JSON log:\n{self.text}") from None
        return record

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.text += line
                self._lines.put(line)
        self._lines.put(None)


def isolated_environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment without settings."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(home)} | more


@contextmanager
def run_serve(
    directory: Path, settings: str = SETTINGS, *, fleet: str = FLEET, within: Sequence[str] = (), **environ: str
) -> Iterator[ServeProcess]:
    """Run `forewarn serve` with these settings; at the end it is stopped and must exit cleanly."""
    (directory / "fleet.toml").write_text(fleet)
    (directory / "forewarn.toml").write_text(settings)
    service = ServeProcess(directory, isolated_environment(directory, **environ), within)
    try:
        yield service.ready()
    except BaseException:
        service.process.kill()
        service.process.wait(GUARD)
        raise
    if service.process.poll() is None:
        assert service.stop() == 0, service.text


def guest_url(service: ServeProcess, vm: str) -> str:
    """Return the URL of a VM's endpoint."""
    return str(service.api.vm(vm).guest_url)


def get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Request a path as a VM; return status, headers and body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
    try:
        connection.request("GET", path, headers={"Metadata": "true"} | headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()
