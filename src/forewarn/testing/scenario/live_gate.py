"""The health gate of a scenario for a running service: an HTTP server that the scenario opens and closes."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


class LiveGate:
    """Responds with 200 while the gate is open, otherwise 503. The server runs from the first use of its address."""

    def __init__(self) -> None:
        self.is_open = True
        self._server: ThreadingHTTPServer | None = None

    @property
    def is_used(self) -> bool:
        """Whether the server runs."""
        return self._server is not None

    @property
    def origin(self) -> str:
        """The address of the server, which is started if necessary."""
        if self._server is None:
            self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
            threading.Thread(target=self._server.serve_forever, name="forewarn-gate", daemon=True).start()
        return f"http://{LOOPBACK}:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The URL of the health check."""
        return f"{self.origin}/health"

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if gate.is_open else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Do nothing."""

        return Handler
