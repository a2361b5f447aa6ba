"""Web server of a VM: `web_server.py PORT NAME`. It responds with its name after a short delay."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TAKES = 0.05
"""Duration of a request in seconds, long enough to be interrupted by a reboot."""


class Web(BaseHTTPRequestHandler):
    """Sends the same response for every path."""

    protocol_version = "HTTP/1.1"
    name = b""

    def do_GET(self) -> None:
        time.sleep(TAKES)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.name)))
        self.end_headers()
        self.wfile.write(self.name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Log nothing."""


if __name__ == "__main__":
    Web.name = sys.argv[2].encode()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Web).serve_forever()
