"""A client that is waiting for a response when the service stops."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.core.scope import ScopeKind
from tests.support.emulator import GUARD, events_path, run_emulator
from tests.third_party_clients.curl import Curl

METADATA = ("--header", "Metadata: true")


def test_long_poll_ends_unchanged_at_shutdown(tmp_path: Path) -> None:
    with run_emulator(tmp_path) as service:
        vm = service.scope_to_itself(ScopeKind.AVAILABILITY_SET)[0]
        etag = Curl(tmp_path)(*METADATA, vm.events()).headers["etag"]
        at = urlsplit(vm.url)
        connection = socket.create_connection((at.hostname, at.port), timeout=GUARD)
        ask = "GET {} HTTP/1.1\r\nHost: {}\r\nMetadata: true\r\n{}\r\n"
        plain = ask.format(events_path(), at.netloc, "")
        waiting = ask.format(events_path() + "&wait=60", at.netloc, f"If-None-Match: {etag}\r\n")
        # The first answer shows that the service has both requests: they reach it in one piece.
        connection.sendall((plain + waiting).encode("ascii"))
        answers = connection.makefile("rb")
        assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
    with connection, answers:
        _, told = answers.read().split(b"HTTP/1.1 304 Not Modified\r\n")
    head, _, rest = told.partition(b"\r\n\r\n")
    assert rest == b""
    assert b"Connection: close" in head.split(b"\r\n")
    assert f"ETag: {etag}".encode() in head.split(b"\r\n")
