"""A real service process on manual time that can be killed and restarted, seen by operators and guests."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.core.journal import EntryKind
from tests.support.emulator import NO_WAIT
from tests.support.program import FREE_PORTS, GUARD, Machine, UpProcess

PATH = "/metadata/scheduledevents?api-version=2020-07-01"


class ServiceProcess:
    """A service that can be killed and restarted with the same data, ports and time."""

    def __init__(self, machine: Machine, *options: str) -> None:
        self._machine = machine
        self._options = ("--manual-time", "--data", str(machine.home / "data"), *options)
        self._up: UpProcess | None = None

    @property
    def up(self) -> UpProcess:
        """The running process."""
        assert self._up is not None
        return self._up

    @property
    def api(self) -> ApiClient:
        """A client with the token of the data directory."""
        return ApiClient(self.up.ready["operator_url"], read_token(self._machine.home / "data/token"), timeout=GUARD)

    def start(self) -> None:
        """Start the service; VMs keep their ports."""
        self._up = self._machine.start("-o", "json", *FREE_PORTS, *self._options, **NO_WAIT)
        self._up.wait_until_ready()

    def kill(self) -> None:
        """Kill the service with SIGKILL."""
        assert self.up.stop(signal.SIGKILL) == -signal.SIGKILL

    def crash_and_restart(self) -> None:
        """Kill the service and start it again."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Stop the service cleanly."""
        assert self.up.stop(signal.SIGINT) == 0, self.up.stderr

    def document(self, vm: str) -> dict[str, Any]:
        """Return a VM's document."""
        status, body = self._request(vm, "GET")
        assert status == 200, body
        document: dict[str, Any] = json.loads(body)
        return document

    def visible_events(self, vm: str) -> list[tuple[str, str, str, list[str]]]:
        """Return the type, status, source and VMs of each event that a VM sees."""
        return [
            (event["EventType"], event["EventStatus"], event["EventSource"], event["Resources"])
            for event in self.document(vm)["Events"]
        ]

    def approve(self, vm: str, event: str) -> None:
        """Approve an event as this VM."""
        status, body = self._request(vm, "POST", json.dumps({"StartRequests": [{"EventId": event}]}))
        assert status == 200, body

    def is_served(self, vm: str) -> bool:
        """Return whether the VM still gets its document."""
        try:
            return self._request(vm, "GET")[0] == 200
        except ConnectionError:
            return False

    def wait_for(self, did: EntryKind, event: str) -> v1.JournalEntry:
        """Follow the journal from its start until this line of an event."""
        for entry in self.api.watch(after=0):
            if entry is not None and (entry.action, entry.event) == (did, event):
                return entry
        raise AssertionError("the journal stream ended")

    def journal_kinds(self, event: str) -> list[str]:
        """Return the kinds of the journal lines of an event."""
        return [entry.action.value for entry in self.api.journal(event=event)]

    def impact(self, event: str) -> v1.Impact:
        """Return the impact state of an open event with one VM."""
        detail = self.api.event(event)
        assert detail.event is not None
        (impact,) = detail.event.impacts
        return impact

    def _request(self, vm: str, method: str, body: str | None = None) -> tuple[int, bytes]:
        parts = urlsplit(self.up.guest_urls[vm])
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
        try:
            connection.request(method, PATH, body, {"Metadata": "true"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def run_service_process(home: Path, *options: str) -> Iterator[ServiceProcess]:
    """Run a service while the context is open; stop it cleanly, or kill it after an error."""
    process = ServiceProcess(Machine(home), *options)
    process.start()
    try:
        yield process
    except BaseException:
        process.up.process.kill()
        process.up.stop()
        raise
    process.stop()
