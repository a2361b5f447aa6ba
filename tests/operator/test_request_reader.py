"""The framing of requests: what another server could read differently is refused, however the bytes arrive."""

from typing import NamedTuple

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.guest.parser import InvalidRequest, ParseState, RequestParser
from forewarn.operator.request_reader import HEAD_BYTES, RequestReader
from tests.guest.running_endpoint import UNLIMITED
from tests.guest.test_parser import EVERY
from tests.guest.test_session import MALFORMED

GET = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"


class Framed(NamedTuple):
    """A request, as it was understood."""

    method: str
    target: str
    body: bytes


def with_host(raw: bytes) -> bytes:
    """Add the header that guests may omit; in a request that is refused, it must not be the reason."""
    for version in (b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"):
        raw = raw.replace(version, version + b"Host: x\r\n", 1)
    return raw


def frame(*pieces: bytes) -> list[Framed | int]:
    """Return the requests in the pieces, up to the first refusal, which is shown by its status."""
    framing, connection = RequestReader(), h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    found: list[Framed | int] = []
    method, target, body = "", "", b""
    waiting = list(pieces)
    try:
        while True:
            match connection.next_event():
                case h11.NEED_DATA:
                    if received := framing.take():
                        connection.receive_data(received)
                    elif waiting:
                        framing.receive(waiting.pop(0))
                    else:
                        return found
                case h11.Request() as request:
                    method, target, body = request.method.decode(), request.target.decode(), b""
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    found.append(Framed(method, target, body))
                    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
                    framing.start_next()
                case event:
                    raise AssertionError(f"not part of a request: {event}")
    except h11.RemoteProtocolError as error:
        return [*found, error.error_status_hint]


def bytewise(raw: bytes) -> list[bytes]:
    return [raw[at : at + 1] for at in range(len(raw))]


@pytest.mark.parametrize("case", EVERY)
def test_valid_request_is_framed_whole_and_byte_by_byte(case: str) -> None:
    raw, read = EVERY[case]
    expected = [Framed(read.method, read.target, read.body), Framed("GET", "/next", b"")]
    assert frame(with_host(raw) + GET) == frame(*bytewise(with_host(raw) + GET)) == expected


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

AMBIGUOUS = {
    "bare line feed between headers": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare line feeds at the end of the head": b"GET / HTTP/1.1\r\nHost: x\n\n",
    "bare carriage return in a header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
    "bare carriage return at the end of the head": b"GET / HTTP/1.1\r\nHost: x\r\n\r\r\n",
    "control character in a header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01\r\n\r\n",
    "space before the first header": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "folded with a tab": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
    "folded length": HEAD + b"Content-Length:\r\n 3\r\n\r\nabc",
    "empty header name": b"GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
    "space in a header name": b"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
    "same length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "length with a sign": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "length in hexadecimal": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "length with an underscore": HEAD + b"Content-Length: 1_0\r\n\r\n0123456789",
    "no length": HEAD + b"Content-Length:\r\n\r\n",
    "space before the colon of a length": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "space before the colon of an encoding": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "encoding that does not end with chunked": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "encoding without chunked": HEAD + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "encoding that looks like chunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "encoding with a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "empty encoding": HEAD + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunked twice in a list": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunk size with a sign": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size with a prefix": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with a bare line feed": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "chunk extension with a bare line feed": CHUNKED + b"3;a\nbc\r\nabc\r\n0\r\n\r\n",
    "chunk size without end": CHUNKED + b"1" * 17 + b"\r\nabc\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "chunk longer than its size": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk that ends with a bare line feed": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "trailers that end with a bare line feed": CHUNKED + b"0\r\nA: b\n\n",
    "trailer with a bare line feed": CHUNKED + b"0\r\nA: b\nC: d\r\n\r\n",
    "folded trailer": CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
    "host with a path": b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
    "host with a user": b"GET / HTTP/1.1\r\nHost: me@x\r\n\r\n",
    "host with a space": b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n",
    "port that is not a number": b"GET / HTTP/1.1\r\nHost: x:y\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two spaces in the request line": b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tab in the request line": b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "space at the end of the request line": b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
    "space before the request line": b" GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "lower-case version": b"GET / http/1.1\r\nHost: x\r\n\r\n",
    "target that is not a path": b"GET path HTTP/1.1\r\nHost: x\r\n\r\n",
    "target with a fragment": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "target with another scheme": b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "target with a user": b"GET http://me@x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare line feed before the request": b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
}
"""Requests that RFC 9112 lets a server refuse or requires it to, besides those that guests are refused for."""

REFUSED = {case: with_host(raw) for case, raw in MALFORMED.items()} | AMBIGUOUS

OTHER_STATUS = {"other encoding": 501}
"""RFC 9112 section 6.1; the status of all others is 400."""


@pytest.mark.parametrize("case", REFUSED)
def test_ambiguous_request_is_refused_whole_and_byte_by_byte(case: str) -> None:
    """Earlier requests are framed, later bytes are not looked at."""
    status = OTHER_STATUS.get(case, 400)
    raw = GET + REFUSED[case] + GET
    assert frame(raw) == frame(*bytewise(raw)) == [Framed("GET", "/next", b""), status]


@pytest.mark.parametrize(
    "endless",
    [GET[:-2] + b"A: b\r\n" * HEAD_BYTES, CHUNKED + b"1;" + b"a" * HEAD_BYTES, CHUNKED + b"0\r\n" + b"A: b\r\n" * 9999],
    ids=["head", "chunk extension", "trailers"],
)
def test_lines_are_limited(endless: bytes) -> None:
    assert frame(endless) == frame(*bytewise(endless)) == [431]


def test_head_of_the_largest_size_is_accepted() -> None:
    raw = GET[:-2] + b"A: " + b"b" * (HEAD_BYTES - len(GET) - 5) + b"\r\n\r\n"
    assert len(raw) == HEAD_BYTES
    assert frame(raw + GET) == [Framed("GET", "/next", b"")] * 2
    assert frame(raw.replace(b"A: ", b"A: b") + GET) == [431]


def guest_frame(raw: bytes) -> list[Framed | int]:
    """Return what the guest endpoint's parser, which is built on another library, makes of the same bytes."""
    parser = RequestParser(UNLIMITED)
    found: list[Framed | int] = []
    at = 0
    try:
        while at < len(raw):
            at = parser.read(raw, at)
            if parser.state is ParseState.DONE:
                found.append(Framed(parser.head.method, parser.head.target, parser.body))
                parser.start_next()
    except InvalidRequest:
        return [*found, 400]
    return found


SAMPLES = [with_host(raw) for raw, _ in EVERY.values()] + list(REFUSED.values()) + [GET]
FRAGMENTS = [b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b"0", b"3", b"\0", b"chunked", b"Content-Length: 3\r\n"]


@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3), st.data())
def test_two_parsers_never_understand_different_requests(samples: list[bytes], data: st.DataObject) -> None:
    """Smuggling needs a disagreement. What both accept, they accept as the same requests."""
    raw = bytearray(b"".join(samples) + GET)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=2))
    whole = bytes(raw)
    ours = frame(whole)
    assert ours == frame(*bytewise(whole))
    for mine, guests in zip(ours, guest_frame(whole), strict=False):
        if not isinstance(mine, Framed) or not isinstance(guests, Framed):
            break
        assert mine == guests
