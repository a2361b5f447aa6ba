"""A client with the HTTP behaviour of .NET Framework, which C# programs and PowerShell share.

It sends no body before the server has sent `100 Continue`, so a server that never sends it fails the test.
"""

import http.client
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from tests.support.emulator import GUARD


class Answer(msgspec.Struct, frozen=True):
    """A response, and whether the server sent `100 Continue` before it."""

    status: int
    body: bytes
    continued: bool


class WebRequests:
    """One kept-alive connection to an endpoint."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=GUARD)
        self._file = self._socket.makefile("rb")
        self._host = parts.netloc
        self._has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._file.close()
        self._socket.close()

    def get(self, path: str, *headers: str) -> Answer:
        """Send a GET."""
        self._send_head(f"GET {path}", *headers)
        return self._receive()

    def post(self, path: str, body: bytes, *headers: str) -> Answer:
        """Send a POST: the body follows after `100 Continue`; if the server refuses instead, return the refusal."""
        self._send_head(f"POST {path}", *headers, f"Content-Length: {len(body)}", "Expect: 100-continue")
        first = self._receive()
        if first.status != http.HTTPStatus.CONTINUE:
            return first
        self._socket.sendall(body)
        return msgspec.structs.replace(self._receive(), continued=True)

    def _send_head(self, request: str, *headers: str) -> None:
        lines = [f"{request} HTTP/1.1", *headers, f"Host: {self._host}"]
        if not self._has_begun:
            lines.append("Connection: Keep-Alive")
            self._has_begun = True
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))

    def _receive(self) -> Answer:
        _, status, _ = self._file.readline().split(b" ", 2)
        headers = http.client.parse_headers(self._file)
        return Answer(int(status), self._file.read(int(headers.get("Content-Length", 0))), continued=False)
