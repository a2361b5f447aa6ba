"""A VM of the in-test service: its guest URL, queries and approvals sent as that VM, and programs that run as it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from forewarn.api.client import ApiClient
from forewarn.client import Document, ScheduledEvents
from forewarn.testing import sandbox

if TYPE_CHECKING:
    from forewarn.testing.event import Event

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"

STOP_TIMEOUT = 10.0
"""How many seconds a program has to exit after SIGTERM."""


class VmProgram(subprocess.Popen[str]):
    """A program that runs as a VM: a `subprocess.Popen` with text streams. It ends with its context, or its service."""

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """End the program with SIGTERM, and with SIGKILL if it is still running after `timeout`; return its exit code.

        Everything that the program has started ends, too.
        """
        if self.poll() is None:
            self.terminate()
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        super().__exit__(kind, error, trace)


class Vm:
    """One VM. Give its `url` to the program under test, or its `environment` to a process, or `run` a program as it."""

    def __init__(self, api: ApiClient, scope: str, name: str, url: str, programs: list[VmProgram]) -> None:
        self._api = api
        self._programs = programs
        self.scope, self.name, self.url = scope, name, url

    @property
    def full_name(self) -> str:
        """The unique name, `scope/name`."""
        return f"{self.scope}/{self.name}"

    @property
    def events_url(self) -> str:
        """The URL of the VM's events with its api-version, for programs that take a complete URL."""
        return self.url + EVENTS_PATH

    @property
    def socket(self) -> Path:
        """A Unix socket whose connections count as the VM's; it is opened at the first access."""
        return Path(self._api.open_socket(self.full_name).path)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which Forewarn's client, agent and command line use this VM's endpoint."""
        return {"FOREWARN_ENDPOINT": self.url}

    def document(self) -> Document:
        """Poll as the VM does, and return the document. Raises the errors of the client library."""
        with self._client() as client:
            return client.get()

    def approve(self, *events: "Event | str") -> None:
        """Approve events as the VM does."""
        first, *more = (str(event) for event in events)
        with self._client() as client:
            client.approve(first, *more)

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: sandbox.File = subprocess.DEVNULL,
        stdout: sandbox.File = None,
        stderr: sandbox.File = None,
        net: bool = False,
    ) -> VmProgram:
        """Start a program as this VM, as `forewarn run` does: unchanged, without root, on Linux.

        In its sandbox, 169.254.169.254 is the VM's endpoint and the host name is the VM's. At the end of
        its context, and at the latest with the service, the program ends.
        """
        if sys.platform != "linux":
            raise sandbox.NamespacesUnavailable(sys.platform)
        started = VmProgram(
            sandbox.supervisor_command(command, socket=self.socket, hostname=self.name, net=net),
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )
        self._programs.append(started)
        return started

    def _client(self) -> ScheduledEvents:
        return ScheduledEvents(self.url, name=self.name, retry_for=0)

    def __str__(self) -> str:
        return self.full_name

    def __repr__(self) -> str:
        return f"<VM {self.full_name} at {self.url}>"


VmLike = Vm | str
"""A VM, or its name: `scope/name`, or the name alone if it is unique in the fleet."""
