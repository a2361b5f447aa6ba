"""Fake metadata endpoint: serves the document that a test sets, and records approvals. It does not support `wait`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, NamedTuple

from tests.support.processes import GUARD


class ReceivedApproval(NamedTuple):
    """A received approval request."""

    headers: Mapping[str, str]
    events: tuple[str, ...]


class FakeEndpoint:
    """The name of the VM, its document, and its requests."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Condition()
        self._body = b""
        self._polls = 0
        self._posts: list[ReceivedApproval] = []
        self.url = ""

    def respond_with(self, body: bytes) -> None:
        """Set the response to all following requests."""
        with self._changed:
            self._body = body

    def announce(self, *events: dict[str, Any], incarnation: int = 2, **more: Any) -> None:
        """Serve this document from now on."""
        self.respond_with(json.dumps({"DocumentIncarnation": incarnation, "Events": events, **more}).encode())

    @property
    def posts(self) -> list[ReceivedApproval]:
        """All approval requests so far."""
        with self._changed:
            return list(self._posts)

    @property
    def approved(self) -> list[str]:
        """The approved event ids in order, with repetitions."""
        return [event for post in self.posts for event in post.events]

    def wait_until_approved(self, *events: str) -> None:
        """Return when each of these has been approved."""
        with self._changed:
            approved = self._changed.wait_for(
                lambda: set(events) <= {event for post in self._posts for event in post.events}, GUARD
            )
        assert approved, f"timeout: {events} not approved; received {self.posts}"

    def wait_for_polls(self, number: int = 5) -> None:
        """Wait for this many further polls, enough for an agent to have reacted to the document."""
        with self._changed:
            enough = self._polls + number
            assert self._changed.wait_for(lambda: self._polls >= enough, GUARD), "no more polls"

    def get(self, path: str) -> bytes:
        """Answer a GET."""
        if "/metadata/instance" in path:
            return (
                self._name.encode() if "format=text" in path else json.dumps({"compute": {"name": self._name}}).encode()
            )
        with self._changed:
            self._polls += 1
            self._changed.notify_all()
            return self._body

    def post(self, headers: Mapping[str, str], body: bytes) -> None:
        """Record an approval."""
        events = tuple(each["EventId"] for each in json.loads(body)["StartRequests"])
        with self._changed:
            self._posts.append(ReceivedApproval(headers, events))
            self._changed.notify_all()


@contextmanager
def run_fake_endpoint(name: str) -> Iterator[FakeEndpoint]:
    """Serve the endpoint of a VM, at first without events."""
    said = FakeEndpoint(name)
    said.announce(incarnation=1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(said.get(self.path))

        def do_POST(self) -> None:
            said.post(dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        said.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield said
        finally:
            server.shutdown()
