"""Minimal guest client: requests as bytes, responses parsed to their end."""

import socket
from typing import NamedTuple

from forewarn.wire.protocol import NEWEST_VERSION

HOST = "127.0.0.1"
TARGET = f"/metadata/scheduledevents?api-version={NEWEST_VERSION}"
QUERY = f"GET {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n\r\n".encode()
CLOSING_QUERY = QUERY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
INSTANCE_QUERY = QUERY.replace(TARGET.encode(), b"/metadata/instance?api-version=2021-02-01")
HEAD_END = b"\r\n\r\n"
RECEIVE_BYTES = 65536


class Response(NamedTuple):
    """A received response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    size: int
    """Total size in bytes, with status line and headers."""

    def header(self, name: str) -> str:
        """Return a required header."""
        return next(value for key, value in self.headers if key.lower() == name)


def long_poll_query(etag: str, *, wait: int = 60) -> bytes:
    """Return a long poll: the response comes when the document differs from this ETag."""
    return (
        f"GET {TARGET}&wait={wait} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\nIf-None-Match: {etag}\r\n\r\n"
    ).encode()


def post(body: bytes) -> bytes:
    """Return a POST of this body to the events."""
    head = f"POST {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def connect(port: int, source: str) -> socket.socket:
    """Connect as the VM with this address."""
    connection = socket.socket()
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.bind((source, 0))
        connection.connect((HOST, port))
    except BaseException:
        connection.close()
        raise
    return connection


def send_request(connection: socket.socket, request: bytes = QUERY) -> Response:
    """Send a request on a blocking connection, and read the response."""
    connection.sendall(request)
    received = b""
    while (answer := parse_response(received)) is None:
        some = connection.recv(RECEIVE_BYTES)
        if not some:
            raise ConnectionError(f"closed in the middle of an answer: {received!r}")
        received += some
    return answer


def parse_response(received: bytes) -> Response | None:
    """Parse a complete response; return None if it is incomplete."""
    head, end, body = received.partition(HEAD_END)
    if not end:
        return None
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    if len(body) < length:
        return None
    return Response(int(status.split()[1]), headers, body[:length], len(head) + len(end) + length)
