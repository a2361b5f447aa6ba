"""The health gate of a scenario for a running service: an HTTP server that is open or closed, as the scenario says."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


class LiveGate:
    """Answers 200 while the gate is open, else 503, from the first use of its address until it is closed."""

    def __init__(self) -> None:
        self.is_open = True
        self._server: ThreadingHTTPServer | None = None

    @property
    def is_used(self) -> bool:
        """Whether a service may ask it."""
        return self._server is not None

    @property
    def origin(self) -> str:
        """The address of the server, which is started if it does not run yet."""
        if self._server is None:
            self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
            threading.Thread(target=self._server.serve_forever, name="forewarn-gate", daemon=True).start()
        return f"http://{LOOPBACK}:{self._server.server_port}"

    @property
    def url(self) -> str:
        """What a service is to ask."""
        return f"{self.origin}/health"

    def close(self) -> None:
        """End the server."""
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
                """Say nothing."""

        return Handler
