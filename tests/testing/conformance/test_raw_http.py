"""Tests of raw HTTP: responses of any form, and the request rate."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn.client import Unreachable
from forewarn.client.endpoint import Endpoint, parse_endpoint
from forewarn.testing.conformance import Pace, examine
from forewarn.testing.conformance.raw_http import RawConnection, Request, RequestFailed, Response, excerpt
from tests.testing.conformance.reports import GUARD, no_delay


@contextmanager
def answering(answer: bytes) -> Iterator[Endpoint]:
    """Run a server that sends these bytes as the response on each connection, and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                line, _ = listener.accept()
                with line:
                    if not line.recv(65_536):
                        return
                    line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield Endpoint(host, port)
        finally:
            socket.create_connection((host, port)).close()
            thread.join()


def ask(endpoint: Endpoint) -> Response:
    with RawConnection(endpoint, GUARD) as line:
        line.send(Request())
        return line.read_response()


OK = b"HTTP/1.1 200 OK\r\nX: y\r\n"
CHUNKED = OK + b"Transfer-Encoding: Chunked\r\n\r\n"

ANSWERS = {
    "length": (OK + b"Content-Length: 2\r\n\r\nab?", b"ab"),
    "chunks": (CHUNKED + b"1;q=1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", b"a0123456789"),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nT: u\r\n\r\n", b"a"),
    "until closed": (OK + b"\r\nabc", b"abc"),
}


@pytest.mark.parametrize(("sent", "body"), ANSWERS.values(), ids=ANSWERS)
def test_body_is_read_with_any_framing(sent: bytes, body: bytes) -> None:
    with answering(sent) as endpoint:
        answer = ask(endpoint)
    assert (answer.status, answer.reason, answer.http_version, answer.header("x"), answer.body) == (
        200,
        "OK",
        "1.1",
        "y",
        body,
    )


BROKEN = {
    "empty response": (b"", "closed before the response was complete"),
    "incomplete head": (b"HTTP/1.1 200 OK\r\nX: y\r\n", "closed before the response was complete"),
    "incomplete body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "closed before the response was complete"),
    "another protocol": (b"220 mail.example ESMTP\r\n\r\n", "the response is not HTTP: 220 mail.example ESMTP"),
    "invalid length": (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "an invalid Content-Length: many"),
    "invalid chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
        "a chunk of the response has no valid size",
    ),
}


@pytest.mark.parametrize(("sent", "why"), BROKEN.values(), ids=BROKEN)
def test_invalid_response_raises_the_reason(sent: bytes, why: str) -> None:
    with answering(sent) as endpoint, pytest.raises(RequestFailed, match=why):
        ask(endpoint)


def test_read_times_out() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        RawConnection(Endpoint(*listener.getsockname()), 0.1) as line,
    ):
        line.send(Request())
        with pytest.raises(RequestFailed, match="no complete response in time"):
            line.read_response()


def test_closed_port_and_other_protocol_are_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    with pytest.raises(Unreachable, match="Connection refused"):
        examine(f"http://{host}:{port}", pace=no_delay(), timeout=GUARD)
    with answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as endpoint, pytest.raises(Unreachable, match=r"not HTTP: SSH-2\.0"):
        examine(endpoint, pace=no_delay(), timeout=GUARD)


def test_head_has_the_given_headers() -> None:
    request = Request(
        method="POST", target="/a?b", headers=(("Metadata", ""), ("X", "y")), body=b"{}", http_version="1.0"
    )
    assert request.head(str(parse_endpoint("127.0.0.1:8180")).removeprefix("http://")) == (
        b"POST /a?b HTTP/1.0\r\nHost: 127.0.0.1:8180\r\nMetadata: \r\nX: y\r\nConnection: close\r\n"
        b"Content-Length: 2\r\n\r\n"
    )


def test_excerpt_escapes_unprintable_bytes() -> None:
    assert excerpt(b'{"a": "\x1b[31m"}\r\n\xff\xc3\xa9') == '{"a": "\\x1b[31m"}\\r\\n\N{REPLACEMENT CHARACTER}é'
    assert excerpt("x" * 500, 3) == "xxx…"


class Clock:
    """A fake clock that moves when a test sleeps or sets it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_pace_limits_the_request_rate() -> None:
    """The time of responses counts towards the interval; a slow one is not made up for later."""
    clock = Clock()
    pace = Pace(4, monotonic=lambda: clock.now, sleep=clock.sleep)
    for work in (0.0, 0.1, 5.0, 0.0):
        pace.wait()
        clock.now += work
    assert clock.slept == pytest.approx([0.25, 0.15])
    assert pace.requests == 4


def test_default_pace_is_below_the_rate_limit_of_a_vm() -> None:
    clock = Clock()
    pace = Pace(monotonic=lambda: clock.now, sleep=clock.sleep)
    for _ in range(101):
        pace.wait()
    assert 100 / (clock.now - 100.0) == pytest.approx(4)


@pytest.mark.parametrize(
    ("http_version", "connection", "closes"),
    [
        ("1.1", None, False),
        ("1.1", "close", True),
        ("1.1", "Upgrade, Close", True),
        ("1.0", None, True),
        ("1.0", "keep-alive", False),
    ],
)
def test_response_announces_whether_the_connection_closes(
    http_version: str, connection: str | None, closes: bool
) -> None:
    headers = () if connection is None else (("Connection", connection),)
    assert Response(status=200, http_version=http_version, headers=headers).announces_close is closes
