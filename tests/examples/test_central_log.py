"""The central-log example: every phase of an event goes to a log server, notice and recovery to an administrator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

import pytest

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.examples.example_settings import example_settings
from tests.examples.service_with_agents import run_service_with_agents
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

FLEET = """\
[[scopes]]
name = "db"
kind = "standalone"
"""


class Told(NamedTuple):
    """A received message."""

    path: str
    authorization: str
    body: Any


class Sink:
    """A log server, or a server that receives messages for people."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._told: list[Told] = []

    def take(self, told: Told) -> None:
        with self._lock:
            self._told.append(told)

    def told(self, path: str) -> list[Told]:
        """Return the messages received at a path, in order."""
        with self._lock:
            return [told for told in self._told if told.path.rstrip("/") == path]


@contextmanager
def sink() -> Iterator[tuple[Sink, str]]:
    """Run a server that collects messages; yield its address as well."""
    collected = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            collected.take(Told(self.path, self.headers.get("Authorization", ""), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collected, f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def phases_told(collected: Sink) -> set[str]:
    """Return the phases that the log server received: each once, in any order."""
    phases = [told.body["phase"] for told in collected.told("/forewarn")]
    assert len(phases) == len(set(phases))
    return set(phases)


def test_log_server_gets_every_phase_and_administrator_gets_notice_and_recovery(tmp_path: Path) -> None:
    with sink() as (collected, address), run_service_with_agents(tmp_path, FLEET) as service:
        secrets = {"logs.token": "the token of the log server", "administrator.urls": f"json://{address}/people"}
        for name, text in secrets.items():
            (tmp_path / name).write_text(f"{text}\n")
            (tmp_path / name).chmod(0o600)
        settings = example_settings(
            "central-log",
            {
                "http://logs.internal:8080/forewarn": f"http://{address}/forewarn",
                "/etc/forewarn/logs.token": str(tmp_path / "logs.token"),
                "/etc/forewarn/administrator.urls": str(tmp_path / "administrator.urls"),
            },
        )
        with service.agent("db/db", settings):
            event = service.schedule(EventType.REBOOT, "db/db")
            wait_until(lambda: phases_told(collected) == {"notice", "prepare", "ready"}, "what is planned")
            assert EntryKind.APPROVED not in service.journal_kinds(event)
            service.advance("10h")
            service.wait_for(EntryKind.STARTED, event)
            wait_until(lambda: "impact" in phases_told(collected), "the impact")
            service.advance("10m")
            service.wait_for(EntryKind.COMPLETED, event)
            wait_until(lambda: "recover" in phases_told(collected), "the end")
            wait_until(lambda: len(collected.told("/people")) == 2, "the administrator's messages")
        for told in collected.told("/forewarn"):
            assert told.authorization == f"Bearer {secrets['logs.token']}"
            assert (told.body["vm"], told.body["event"], told.body["type"]) == ("db", event, "Reboot")
        titles = [told.body["title"] for told in collected.told("/people")]
        assert titles == ["Reboot of db: notice", "Reboot of db: recover"]
