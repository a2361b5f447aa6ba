"""The HTTP client: what it sends, how much it reads, and its errors for servers that do not respond properly."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forewarn.http_client import (
    MAX_HEADERS,
    USER_AGENT,
    HttpRequest,
    HttpResponse,
    InvalidResponse,
    RequestFailed,
    RequestTimeout,
    ResponseTooLarge,
    send_request,
)
from tests.support.recording_server import RecordingServer, run_recording_server

SHORT = timedelta(seconds=0.05)
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        yield web


async def test_request_is_sent_as_given(web: RecordingServer) -> None:
    request = HttpRequest("PUT", f"{web.url}?a=b&c=d", {"X-Key": "k", "User-Agent": "mine"}, b"body")
    assert await send_request(request) == HttpResponse(200)
    (received,) = web.received
    assert (received.request_line, received.body) == ("PUT /hook?a=b&c=d HTTP/1.1", b"body")
    assert received.headers == {
        "host": f"127.0.0.1:{web.port}",
        "user-agent": "mine",
        "x-key": "k",
        "content-length": "4",
        "connection": "close",
    }


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("DELETE", None), ("POST", "0"), ("PATCH", "0")])
async def test_only_methods_with_a_body_send_content_length_0(
    web: RecordingServer, method: str, length: str | None
) -> None:
    await send_request(HttpRequest(method, web.url))
    assert web.received[0].headers.get("content-length") == length
    assert web.received[0].headers["user-agent"] == USER_AGENT


async def test_user_and_password_are_sent_unless_a_header_replaces_them(web: RecordingServer) -> None:
    url = f"http://admin:p%40ss@127.0.0.1:{web.port}/"
    await send_request(HttpRequest("GET", url))
    await send_request(HttpRequest("GET", url, {"Authorization": "Bearer x"}))
    assert [each.headers["authorization"] for each in web.received] == ["Basic YWRtaW46cEBzcw==", "Bearer x"]
    assert HttpRequest("GET", url).origin == f"http://127.0.0.1:{web.port}"


async def test_characters_not_allowed_in_a_url_are_encoded(web: RecordingServer) -> None:
    await send_request(HttpRequest("GET", f"http://127.0.0.1:{web.port}/a b/ü?q=%20\u2028"))
    assert web.received[0].request_line == "GET /a%20b/%C3%BC?q=%20%E2%80%A8 HTTP/1.1"


async def test_header_with_a_line_break_is_refused(web: RecordingServer) -> None:
    with pytest.raises(RequestFailed, match="a header contains a line break"):
        await send_request(HttpRequest("GET", web.url, {"X": "a\r\nEvil: 1"}))
    assert web.received == []


BODIES = {
    "length": (OK + b"Content-Length: 3\r\n\r\nabcdef", HttpResponse(200, b"abc")),
    "to the end": (OK + b"\r\nabcdef", HttpResponse(200, b"abcdef")),
    "nothing": (b"HTTP/1.1 404 No\r\nCONTENT-LENGTH:0\r\n\r\n", HttpResponse(404)),
    "204 with a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", HttpResponse(204)),
    "chunks": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n3;name=x\r\nabc\r\n7\r\n0123456\r\n0\r\nTrailer: x\r\n\r\n",
        HttpResponse(200, b"abc0123456"),
    ),
    "as much as allowed": (OK + b"\r\n" + b"x" * 10, HttpResponse(200, b"x" * 10)),
}


@pytest.mark.parametrize("case", BODIES)
async def test_body_is_read_on_demand(web: RecordingServer, case: str) -> None:
    said, response = BODIES[case]
    web.statuses = [said, said]
    assert await send_request(HttpRequest("GET", web.url), max_body=10) == response
    assert await send_request(HttpRequest("GET", web.url)) == HttpResponse(response.status)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
INVALID, TOO_LARGE = "{} sent an invalid response: {}", "the response of {} is too large: {}"
CUT_OFF = "the connection was closed before its end"
WRONG: dict[str, tuple[bytes, type[RequestFailed], str, str]] = {
    "too long": (OK + b"\r\n" + b"x" * 11, ResponseTooLarge, TOO_LARGE, "more than 10 bytes"),
    "too long by its header": (OK + b"Content-Length: 11\r\n\r\n", ResponseTooLarge, TOO_LARGE, "more than 10 bytes"),
    "chunks too long": (CHUNKED + b"6\r\nabcdef\r\n5\r\n", ResponseTooLarge, TOO_LARGE, "more than 10 bytes"),
    "cut off": (OK + b"Content-Length: 9\r\n\r\nabc", InvalidResponse, INVALID, CUT_OFF),
    "chunk cut off": (CHUNKED + b"3\r\nab", InvalidResponse, INVALID, CUT_OFF),
    "no last chunk": (CHUNKED + b"3\r\nabc\r\n", InvalidResponse, INVALID, CUT_OFF),
    "chunk without size": (CHUNKED + b"-1\r\n", InvalidResponse, INVALID, "a chunk has no size"),
    "longer chunk": (CHUNKED + b"1\r\nabc\r\n", InvalidResponse, INVALID, "a chunk is longer than its size"),
    "compressed": (
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        InvalidResponse,
        INVALID,
        "its Transfer-Encoding is not chunked",
    ),
    "headers": (OK + b"X: y\r\n" * (MAX_HEADERS + 1), InvalidResponse, INVALID, "it has more than 1000 headers"),
    "endless line": (OK + b"X: " + b"y" * 100_000, InvalidResponse, INVALID, "it is not HTTP"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", InvalidResponse, INVALID, "it is not HTTP"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_invalid_response_is_an_error(web: RecordingServer, case: str) -> None:
    said, error, message, reason = WRONG[case]
    web.statuses = [said]
    with pytest.raises(RequestFailed) as raised:
        await send_request(HttpRequest("GET", web.url), max_body=10)
    assert (type(raised.value), raised.value.reason) == (error, reason)
    assert str(raised.value) == message.format(f"http://127.0.0.1:{web.port}", reason)


async def test_request_ends_at_the_time_limit(web: RecordingServer) -> None:
    web.statuses = [None]
    with pytest.raises(RequestTimeout) as raised:
        await send_request(HttpRequest("GET", f"{web.url}&secret=x"), time_limit=SHORT)
    assert str(raised.value) == f"no response from http://127.0.0.1:{web.port} within 0.05s"


async def test_large_request_body_that_the_server_does_not_read_ends_at_the_time_limit() -> None:
    async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closed.wait()
        writer.close()

    closed = asyncio.Event()
    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(RequestTimeout):
            await send_request(HttpRequest("POST", url, body=bytes(32 << 20)), time_limit=SHORT)
        closed.set()


async def test_invalid_host_name_is_refused() -> None:
    with pytest.raises(RequestFailed, match="invalid host name"):
        await send_request(HttpRequest("GET", f"http://{'.' * 64}/"))


INVALID_URLS = {
    "ftp://user:secret@x/": "invalid URL ftp://x: the scheme must be http or https",
    "http://[::1": "invalid URL http://…: Invalid IPv6 URL",
    "secret[": "invalid URL ://: the scheme must be http or https",
    "http:///secret": "invalid URL http://: it has no host",
    "https://x:99999/secret": "invalid URL https://x:99999: the port must be a number from 1 to 65535",
}


@pytest.mark.parametrize("url", INVALID_URLS)
async def test_url_that_names_no_http_server_is_refused(url: str) -> None:
    with pytest.raises(RequestFailed) as raised:
        await send_request(HttpRequest("GET", url))
    assert str(raised.value) == INVALID_URLS[url]
