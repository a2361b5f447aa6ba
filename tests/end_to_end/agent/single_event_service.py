"""A metadata service on a real socket with one event: scheduled, started when approved, then gone."""

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import msgspec

ID = "602D9444-D2CD-49C7-8624-8643E7171297"


class SingleEventService:
    """Serves VM web_0 at a separate port, and counts requests."""

    def __init__(self) -> None:
        self.state = "Scheduled"
        self.approvals = 0
        self.polls_since_start = 0
        self.lock = threading.Lock()
        service = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = service.instance() if self.path.startswith("/metadata/instance") else service.document()
                self._answer(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                service.approve()
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                with suppress(OSError):  # the client may have died
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def instance(self) -> bytes:
        return b'{"compute":{"name":"web_0"}}'

    def approve(self) -> None:
        with self.lock:
            self.approvals += 1
            if self.state == "Scheduled":
                self.state = "Started"

    def document(self) -> bytes:
        """Return the document; the event disappears after two requests that showed it as started."""
        with self.lock:
            if self.state == "Started":
                self.polls_since_start += 1
                if self.polls_since_start > 2:
                    self.state = "gone"
            events = [] if self.state == "gone" else [self._event()]
            return msgspec.json.encode({"DocumentIncarnation": 1 + self.polls_since_start, "Events": events})

    def _event(self) -> dict[str, object]:
        return {
            "EventId": ID,
            "EventStatus": self.state,
            "EventType": "Reboot",
            "ResourceType": "VirtualMachine",
            "Resources": ["web_0"],
            "NotBefore": "Mon, 19 Sep 2050 18:29:47 GMT" if self.state == "Scheduled" else "",
            "Description": "host maintenance",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
