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
from tests.support.program import FREE_PORTS, GUARD, Machine, UpProcess

PATH = "/metadata/scheduledevents?api-version=2020-07-01"


class ServiceProcess:
    """A service that can be killed and started again; its data, its ports and its time stay."""

    def __init__(self, machine: Machine, *options: str) -> None:
        self._machine = machine
        self._options = ("--manual-time", "--data", str(machine.home / "data"), *options)
        self._up: UpProcess | None = None

    @property
    def up(self) -> UpProcess:
        """The process that runs."""
        assert self._up is not None
        return self._up

    @property
    def api(self) -> ApiClient:
        """A client with the token of the data directory."""
        return ApiClient(self.up.ready["operator_url"], read_token(self._machine.home / "data/token"), timeout=GUARD)

    def start(self) -> None:
        """Start the service; the ports of VMs are those that they were given."""
        self._up = self._machine.start("-o", "json", *FREE_PORTS, *self._options)
        self._up.wait_until_ready()

    def kill(self) -> None:
        """Let the service end without any chance to do something before."""
        assert self.up.stop(signal.SIGKILL) == -signal.SIGKILL

    def crash_and_restart(self) -> None:
        """Let it die, and go on."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End the service in order."""
        assert self.up.stop(signal.SIGINT) == 0, self.up.stderr

    def document(self, vm: str) -> dict[str, Any]:
        """Return what a VM sees."""
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
        """Approve an event as that VM does."""
        status, body = self._request(vm, "POST", json.dumps({"StartRequests": [{"EventId": event}]}))
        assert status == 200, body

    def is_served(self, vm: str) -> bool:
        """Tell whether the VM still gets its document."""
        try:
            return self._request(vm, "GET")[0] == 200
        except ConnectionError:
            return False

    def wait_for(self, did: EntryKind, event: str) -> v1.JournalEntry:
        """Follow the journal from its beginning to the first such line of an event."""
        for entry in self.api.watch(after=0):
            if entry is not None and (entry.action, entry.event) == (did, event):
                return entry
        raise AssertionError("the journal has an end")

    def journal_kinds(self, event: str) -> list[str]:
        """Return what the journal tells of an event."""
        return [entry.action.value for entry in self.api.journal(event=event)]

    def impact(self, event: str) -> v1.Impact:
        """Return how far the work of an open event is, which has one VM."""
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
    """Have a service for a while; it ends in order, or is killed if something goes wrong."""
    process = ServiceProcess(Machine(home), *options)
    process.start()
    try:
        yield process
    except BaseException:
        process.up.process.kill()
        process.up.stop()
        raise
    process.stop()
