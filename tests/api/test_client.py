"""The client of the operator API against servers that are not what they should be; tests/operator has the real one."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, CannotReach, NotForewarn, NotFound, NoUrl, Refusal


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Answer one request with these bytes."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def http(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


REFUSED = b'{"error": {"code": "busy", "message": "not now", "details": {"vm": "x"}, "later": 1}}'
ANSWERS: dict[str, tuple[bytes, type[ApiError], str]] = {
    "refusal": (http(409, REFUSED), Refusal, "not now"),
    "not found": (http(404, REFUSED), NotFound, "not now"),
    "another program": (http(200, b"<html>"), NotForewarn, "does not answer as Forewarn's operator API: status 200"),
    "other JSON": (http(200, b"[]"), NotForewarn, "status 200, Expected `object`, got `array`"),
    "error of another program": (http(502, b"Bad Gateway"), NotForewarn, "status 502"),
    "no HTTP": (b"SSH-2.0\r\n", NotForewarn, "BadStatusLine"),
    "nothing": (b"", CannotReach, "Remote end closed connection"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_that_is_no_answer_is_an_error(answer: str) -> None:
    sent, kind, said = ANSWERS[answer]
    with server(sent) as url, pytest.raises(ApiError) as raised:
        ApiClient(url, "token").clock()
    assert (type(raised.value), said in str(raised.value)) == (kind, True), raised.value


def test_refusal_carries_its_facts() -> None:
    with server(http(409, REFUSED)) as url, pytest.raises(Refusal) as raised:
        ApiClient(url, "token").clock()
    refusal = raised.value
    assert (refusal.status, refusal.code, refusal.details) == (409, "busy", {"vm": "x"})


def test_fields_that_a_newer_service_adds_do_no_harm() -> None:
    body = b'{"now": "2026-03-02T10:00:00Z", "manual": true, "next_at": null, "phase": "waning"}'
    with server(http(200, body)) as url:
        assert ApiClient(url, "token").clock().manual


def test_nobody_at_the_url() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(CannotReach, match=f"cannot reach {url}: Connection refused"):
            ApiClient(url, "token").clock()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8170", "ftp://x", "http://", "http://x:99999", "http://x:y"])
def test_url_that_is_none_is_said_at_once(url: str) -> None:
    with pytest.raises(NoUrl, match="is no URL of a service"):
        ApiClient(url, "token")
