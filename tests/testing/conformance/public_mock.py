"""The behaviour of Microsoft's public mock of Scheduled Events, re-created on the development server that Flask uses.

It serves one event at a time on one path, to every method that Flask routes there. It ignores header, version and all
parameters, gives the event another id whenever its document changes, reads only the first StartRequest, writes sorted
keys and ISO dates, closes each connection, and has HTML pages for errors.
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server

METHODS = ["GET", "HEAD", "OPTIONS", "POST"]
NOTICE = timedelta(minutes=15)


class SilentRequestHandler(WSGIRequestHandler):
    """Writes no log."""

    def log(self, type: str, message: str, *args: Any) -> None: ...  # noqa: A002  # the name of the base class


class PublicMock:
    """The mock with one Scheduled Freeze. `starts_after` is the number of queries after which it starts by itself."""

    def __init__(self, *, starts_after: int | None = None) -> None:
        self.incarnation = 2
        self.event_id = str(uuid.uuid4())
        self.status = "Scheduled"
        self.not_before = datetime.now(UTC) + NOTICE
        self._queries_left = starts_after
        self._lock = threading.Lock()
        self._paths = Map([Rule("/metadata/scheduledevents", methods=METHODS, endpoint="events")])

    def __call__(self, environ: Any, start_response: Any) -> Any:
        asked = Request(environ)
        with self._lock:
            try:
                response = self._response(asked)
            except HTTPException as error:
                response = error
            except Exception:  # noqa: BLE001  # Flask answers any exception of a handler like this
                response = InternalServerError()
        return response(environ, start_response)

    def _response(self, asked: Request) -> Response | HTTPException:
        paths = self._paths.bind_to_environ(asked.environ)
        paths.match()
        if asked.method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(METHODS)})
        if asked.method == "POST":
            try:
                content = json.loads(asked.get_data())
            except ValueError:
                return self._json({"error": "Invalid JSON"}, 400)
            entries = content.get("StartRequests", [])
            if entries and isinstance(entries, list) and entries[0].get("EventId") == self.event_id:
                self._start()
        elif self._queries_left is not None:
            self._queries_left -= 1
            if self._queries_left < 0:
                self._start()
        return self._json(self._document())

    def _start(self) -> None:
        if self.status == "Scheduled":
            self.status = "Started"
            self.event_id = str(uuid.uuid4())
            self.incarnation += 1

    def _document(self) -> dict[str, Any]:
        event = {
            "EventId": self.event_id,
            "EventStatus": self.status,
            "EventType": "Freeze",
            "ResourceType": "VirtualMachine",
            "Resources": ["vmss_vm1"],
            "EventSource": "Platform",
            "NotBefore": f"{self.not_before:%Y-%m-%dT%H:%M:%SZ}" if self.status == "Scheduled" else "",
            "Description": "The host is updated.",
            "DurationInSeconds": 5,
        }
        return {"DocumentIncarnation": self.incarnation, "Events": [event]}

    def _json(self, content: object, status: int = 200) -> Response:
        body = json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n"
        return Response(body, status, mimetype="application/json")


@contextmanager
def run_public_mock(mock: Callable[[Any, Any], Any]) -> Iterator[str]:
    """Run the mock on a free port, and yield its URL."""
    server = make_server("127.0.0.1", 0, mock, threaded=True, request_handler=SilentRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
