"""The client of the operator API against misbehaving servers; tests/operator tests it with the real one."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient, LocalApiClient, ServiceAddress
from forewarn.api.errors import (
    ApiError,
    CertificateError,
    ConnectionClosed,
    InvalidResponse,
    InvalidUrl,
    NotFound,
    RequestRefused,
    ServiceUnreachable,
)


@contextmanager
def server(*answers: bytes, seen: list[bytes] | None = None) -> Iterator[str]:
    """Answer one request per given response, and record the requests."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                asked = _whole_request(connection)
                if seen is not None:
                    seen.append(asked)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def _whole_request(connection: socket.socket) -> bytes:
    asked = b""
    while True:
        asked += connection.recv(65536)
        head, end, body = asked.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if end and len(body) == int(length[1] if length else 0):
            return asked


def http(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


REFUSED = b'{"error": {"code": "resource-in-use", "message": "not now", "details": {"vm": "x"}, "later": 1}}'
ANSWERS: dict[str, tuple[bytes, type[ApiError], str]] = {
    "refusal": (http(409, REFUSED), RequestRefused, "not now"),
    "not found": (http(404, REFUSED), NotFound, "not now"),
    "another program": (
        http(200, b"<html>"),
        InvalidResponse,
        "does not respond as Forewarn's operator API: JSON is malformed",
    ),
    "other JSON": (http(200, b"[]"), InvalidResponse, "Expected `object`, got `array`"),
    "error of another API": (http(502, b"Bad Gateway"), InvalidResponse, "status 502"),
    "not HTTP": (b"SSH-2.0\r\n", InvalidResponse, "BadStatusLine"),
    "incomplete response": (
        http(200, b"{}")[:-1],
        ConnectionClosed,
        "the connection ended before the response was complete",
    ),
    "nothing": (
        b"",
        ConnectionClosed,
        "the connection ended before the response was complete; does the service use https?",
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_invalid_response_is_an_error(answer: str) -> None:
    sent, kind, said = ANSWERS[answer]
    with server(sent) as url, pytest.raises(ApiError) as raised:
        ApiClient(url, "token").clock()
    assert (type(raised.value), said in str(raised.value)) == (kind, True), raised.value


def test_refusal_has_code_message_and_details() -> None:
    with server(http(409, REFUSED)) as url, pytest.raises(RequestRefused) as raised:
        ApiClient(url, "token").clock()
    refusal = raised.value
    assert (refusal.status, refusal.code, refusal.details) == (409, "resource-in-use", {"vm": "x"})


def test_unknown_fields_of_a_newer_service_are_ignored() -> None:
    body = b'{"now": "2026-03-02T10:00:00Z", "manual": true, "next_change_at": null, "phase": "waning"}'
    with server(http(200, body)) as url:
        assert ApiClient(url, "token").clock().manual


def test_url_without_a_service() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ServiceUnreachable, match=f"cannot reach {url}: Connection refused"):
            ApiClient(url, "token").clock()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8170",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x:y",
        "http://x y",
        "http://x/y z",
        "http://x\n",
    ],
)
def test_invalid_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidUrl, match="is not the URL of a service"):
        ApiClient(url, "token")


HOLDS = http(200, b'{"holds": []}')


def test_change_is_retried_once_with_the_same_key_if_the_response_is_lost() -> None:
    seen: list[bytes] = []
    with server(b"", HOLDS, seen=seen) as url:
        assert ApiClient(url, "token").hold(v1.CreateHold(reason="disk swap")) == v1.Holds(holds=[])
    first, second = seen
    assert first == second
    assert b"idempotency-key: " in first.lower()


def test_each_change_has_its_own_key() -> None:
    seen: list[bytes] = []
    with server(HOLDS, HOLDS, seen=seen) as url:
        client = ApiClient(url, "token")
        client.hold(v1.CreateHold(reason="disk swap"))
        client.hold(v1.CreateHold(reason="disk swap"))
    assert seen[0] != seen[1]


def test_change_whose_response_is_lost_twice_is_an_error() -> None:
    with server(b"", b"") as url, pytest.raises(ConnectionClosed, match="check whether the request was processed"):
        ApiClient(url, "token").hold(v1.CreateHold(reason="disk swap"))


def test_advance_of_the_clock_is_never_sent_twice() -> None:
    seen: list[bytes] = []
    with server(b"", seen=seen) as url, pytest.raises(ConnectionClosed):
        ApiClient(url, "token").advance("15m")
    assert len(seen) == 1


def test_local_client_finds_its_service_once_at_the_first_request() -> None:
    def find() -> ServiceAddress:
        found.append(url)
        return ServiceAddress(url, "token")

    found: list[str] = []
    with server(http(200, b'{"now": "2026-03-02T10:00:00Z", "manual": true, "next_change_at": null}')) as url:
        client = LocalApiClient(find)
        assert found == []
        assert client.clock().manual
        assert (client.url, found) == (url, [url])


def test_watch_yields_entries_and_heartbeats_and_raises_when_the_service_is_gone() -> None:
    entry = (
        b'{"position": 7, "record_kind": "scope", "record_id": "web", "at": "2026-03-02T10:00:00Z", "action": "held",'
        b' "actor": "ada", "reason": "", "event": null, "vms": [], "incarnation": 1, "facts": {}}'
    )
    stream = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n: here\r\n\r\nid: 7\r\ndata: " + entry + b"\r\n\r\n"
    with server(stream) as url:
        lines = ApiClient(url, "token").watch(after=6)
        assert next(lines) is None
        line = next(lines)
        assert line is not None
        assert line.position == 7
        with pytest.raises(ConnectionClosed):
            next(lines)


def test_invalid_ca_file(tmp_path: Path) -> None:
    nothing = tmp_path / "ca.pem"
    nothing.write_text("nothing")
    with pytest.raises(CertificateError, match="has no usable certificates"):
        ApiClient("https://127.0.0.1:1", "token", ca=nothing)
