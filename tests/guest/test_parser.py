"""The request parser: the split of the bytes does not matter, and it never reads past the end of a request."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.guest.limits import Limits
from forewarn.guest.parser import (
    CACHED_REQUESTS,
    CONNECTION_CLOSE,
    KEEP_ALIVE,
    KEEP_ALIVE_HTTP_1_0,
    CachedRequest,
    InvalidRequest,
    ParseState,
    RequestCache,
    RequestParser,
)
from forewarn.wire.error_responses import ErrorReason
from forewarn.wire.request import VersionsRequest

HEAD_LIMIT = 1024
BODY_LIMIT = 256
LIMITS = Limits(header_bytes=HEAD_LIMIT, header_fields=20, body_bytes=BODY_LIMIT)


class Read(NamedTuple):
    """A parsed request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection_line: bytes
    is_expecting: bool
    has_body: bool


def read_all(*pieces: bytes) -> list[Read | ErrorReason]:
    """Parse the pieces one after the other, request by request, up to the first error."""
    reader = RequestParser(LIMITS)
    found: list[Read | ErrorReason] = []
    try:
        for piece in pieces:
            at = 0
            while at < len(piece):
                at = reader.read(piece, at)
                if reader.state is ParseState.DONE:
                    found.append(taken(reader))
                    reader.start_next()
    except InvalidRequest as error:
        found.append(error.response.reason)
    return found


def taken(reader: RequestParser) -> Read:
    head = reader.head
    headers = tuple(head.headers)
    return Read(
        head.method,
        head.target,
        headers,
        reader.body,
        reader.connection_line,
        reader.expects_continue,
        reader.has_body,
    )


def plain(method: str = "GET", target: str = "/", *headers: tuple[str, str]) -> Read:
    return Read(method, target, headers, b"", KEEP_ALIVE, is_expecting=False, has_body=False)


CHUNKED = ("Transfer-Encoding", "chunked")
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "h2c"))

REQUESTS: dict[str, tuple[bytes, Read]] = {
    "GET": (b"GET /a?b=c HTTP/1.1\r\nA: b\r\n\r\n", plain("GET", "/a?b=c", ("A", "b"))),
    "no headers": (b"GET / HTTP/1.1\r\n\r\n", plain()),
    "empty lines before": (b"\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", plain()),
    "header twice": (b"GET / HTTP/1.1\r\nA: b\r\na: c\r\n\r\n", plain("GET", "/", ("A", "b"), ("a", "c"))),
    "POST": (
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        plain("POST", "/", ("Content-Length", "4"))._replace(body=b"\r\n\r\n", has_body=True),
    ),
    "empty POST": (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", plain("POST", "/", ("Content-Length", "0"))),
    "chunks": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\r\n\r\n4;x=y\r\n\r\n\r\n\r\n0\r\n\r\n",
        plain("POST", "/", CHUNKED)._replace(body=b"\r\n\r\n\r\n", has_body=True),
    ),
    "trailers": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nMetadata: true\r\n\r\n",
        plain("POST", "/", CHUNKED)._replace(body=b"x", has_body=True),
    ),
    "upgrade": (
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        plain("GET", "/", *UPGRADE),
    ),
    "upgrade with length": (
        b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        plain("POST", "/", *UPGRADE, ("Content-Length", "3"))._replace(body=b"abc", has_body=True),
    ),
    "upgrade with chunks": (
        b"POST / HTTP/1.1\r\n%b\r\n3\r\nabc\r\n0\r\n\r\n"
        % b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n",
        plain("POST", "/", *UPGRADE, CHUNKED)._replace(body=b"abc", has_body=True),
    ),
    "expectation": (
        b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
        plain("POST", "/", ("Expect", "100-Continue"), ("Content-Length", "1"))._replace(
            body=b"x", has_body=True, is_expecting=True
        ),
    ),
    "HTTP/1.0 kept open": (
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        plain("GET", "/", ("Connection", "keep-alive"))._replace(connection_line=KEEP_ALIVE_HTTP_1_0),
    ),
}

LAST_REQUESTS: dict[str, tuple[bytes, Read]] = {
    "close": (
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        plain("GET", "/", ("Connection", "close"))._replace(connection_line=CONNECTION_CLOSE),
    ),
    "close among others": (
        b"GET / HTTP/1.1\r\nConnection: Foo, Close\r\n\r\n",
        plain("GET", "/", ("Connection", "Foo, Close"))._replace(connection_line=CONNECTION_CLOSE),
    ),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", plain()._replace(connection_line=CONNECTION_CLOSE)),
    "CONNECT": (b"CONNECT h:1 HTTP/1.1\r\n\r\n", plain("CONNECT", "h:1")._replace(connection_line=CONNECTION_CLOSE)),
    "expectation in HTTP/1.0": (
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
        plain("POST", "/", ("Expect", "100-continue"), ("Content-Length", "1"))._replace(
            body=b"x", has_body=True, connection_line=CONNECTION_CLOSE
        ),
    ),
}

EVERY = REQUESTS | LAST_REQUESTS


@pytest.mark.parametrize(("raw", "expected"), EVERY.values(), ids=EVERY)
def test_request_is_parsed_whole_and_byte_by_byte(raw: bytes, expected: Read) -> None:
    """The result is the same."""
    assert read_all(raw) == [expected]
    assert read_all(*(raw[at : at + 1] for at in range(len(raw)))) == [expected]


@given(st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=6), st.data())
def test_split_of_pipelined_requests_does_not_matter(names: list[str], data: st.DataObject) -> None:
    """The requests may arrive in pieces of any size."""
    raw = b"".join(REQUESTS[name][0] for name in names)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read_all(*pieces) == [REQUESTS[name][1] for name in names]


@pytest.mark.parametrize(("raw", "_"), EVERY.values(), ids=EVERY)
def test_nothing_is_read_beyond_the_end_of_a_request(raw: bytes, _: Read) -> None:
    """The bytes after it may be the next request, or may have to be ignored."""
    reader = RequestParser(LIMITS)
    data = raw + b"GET /behind HTTP/1.1\r\n\r\n"
    at = 0
    while reader.state is not ParseState.DONE:
        at = reader.read(data, at)
    assert at == len(raw)


def padded(size: int) -> bytes:
    """Return headers of exactly that size."""
    bare = b"GET / HTTP/1.1\r\nA: \r\n\r\n"
    return bare.replace(b"A: ", b"A: " + b"x" * (size - len(bare)))


def test_header_size_limit_is_exact() -> None:
    """In one piece, in many pieces, and without an end."""
    fits, over = padded(HEAD_LIMIT), padded(HEAD_LIMIT + 1)
    assert len(fits) == HEAD_LIMIT
    for size in (1, 7, 5000):
        (found,) = read_all(*(fits[at : at + size] for at in range(0, len(fits), size)))
        assert isinstance(found, Read)
        assert read_all(*(over[at : at + size] for at in range(0, len(over), size))) == [ErrorReason.HEADER_TOO_LARGE]
        assert read_all(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000) == [ErrorReason.HEADER_TOO_LARGE]


def test_header_size_limit_applies_per_request() -> None:
    """Many requests on one connection do not add up."""
    assert len(read_all(padded(HEAD_LIMIT) * 5)) == 5


def test_header_count_limit_is_exact() -> None:
    """Short headers take as much time as long ones."""
    (found,) = read_all(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20 + b"\r\n")
    assert isinstance(found, Read)
    assert read_all(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 21 + b"\r\n") == [ErrorReason.HEADER_TOO_LARGE]


@pytest.mark.parametrize("piece", [1, 7, 5000])
def test_empty_lines_before_a_request_are_skipped_up_to_a_limit(piece: int) -> None:
    """Some clients send an extra one after a body; without a limit, a guest could send them endlessly."""
    some, endless = b"\r\n" * (HEAD_LIMIT // 2) + padded(HEAD_LIMIT), b"\r\n" * HEAD_LIMIT
    (found,) = read_all(*(some[at : at + piece] for at in range(0, len(some), piece)))
    assert isinstance(found, Read)
    assert len(read_all(some * 5)) == 5
    assert read_all(*(endless[at : at + piece] for at in range(0, len(endless), piece))) == [
        ErrorReason.HEADER_TOO_LARGE
    ]


def with_length(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size


def in_chunks(size: int, chunk: int) -> bytes:
    chunks = [b"%x\r\n%b\r\n" % (length, b"x" * length) for length in _lengths(size, chunk)]
    return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"


def _lengths(size: int, chunk: int) -> list[int]:
    return [min(chunk, size - start) for start in range(0, size, chunk)]


@pytest.mark.parametrize(
    "make",
    [
        with_length,
        lambda size: in_chunks(size, size),
        lambda size: in_chunks(size, 1),
        lambda size: in_chunks(size, 100),
    ],
    ids=["length", "one chunk", "chunks of one", "chunks"],
)
def test_body_size_limit_is_exact(make: object) -> None:
    """With a Content-Length and chunked."""
    assert callable(make)
    (found,) = read_all(make(BODY_LIMIT))
    assert isinstance(found, Read)
    assert found.body == b"x" * BODY_LIMIT
    assert read_all(make(BODY_LIMIT + 1)) == [ErrorReason.TOO_LARGE]


@pytest.mark.parametrize(
    "endless",
    [b"1;" + b"x" * 5000, b"0\r\n" + b"A: b\r\n" * 5000, b"0\r\nA: " + b"x" * 5000],
    ids=["extension", "trailers", "trailer"],
)
def test_framing_of_a_chunked_body_is_limited(endless: bytes) -> None:
    """Chunk extensions and trailers must not grow without limit."""
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read_all(head + endless) == [ErrorReason.TOO_LARGE]
    assert read_all(head, *(endless[at : at + 1] for at in range(len(endless)))) == [ErrorReason.TOO_LARGE]


def test_content_length_over_the_limit_is_refused_before_the_body() -> None:
    """The peer need not send the body first."""
    assert read_all(b"POST / HTTP/1.1\r\nContent-Length: 257\r\n\r\n") == [ErrorReason.TOO_LARGE]


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_incomplete(garbage: bytes) -> None:
    """The result is always a request, a refusal or nothing yet."""
    for found in read_all(garbage, garbage):
        assert isinstance(found, Read | ErrorReason)


@given(st.sampled_from(sorted(EVERY)), st.data())
def test_mutations_give_the_same_result_whole_and_byte_by_byte(name: str, data: st.DataObject) -> None:
    """One byte changed, inserted or removed."""
    raw = bytearray(EVERY[name][0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        with_ = data.draw(st.binary(max_size=3))
        raw[at : at + data.draw(st.integers(0, 2))] = with_
        if not raw:
            return
    whole = bytes(raw)
    assert read_all(whole) == read_all(*(whole[at : at + 1] for at in range(len(whole))))


def test_request_cache_drops_the_oldest_request_when_it_is_full() -> None:
    """A guest that varies its requests cannot make the cache grow."""
    cache, request = RequestCache(), CachedRequest(VersionsRequest(), KEEP_ALIVE)
    for number in range(CACHED_REQUESTS + 1):
        cache.add(str(number).encode(), request)
    assert [cache.get(str(number).encode()) for number in (0, 1, CACHED_REQUESTS)] == [None, request, request]


def test_request_cache_keeps_a_request_once() -> None:
    """Adding a cached request again does not drop another one."""
    cache, request = RequestCache(), CachedRequest(VersionsRequest(), KEEP_ALIVE)
    for number in range(CACHED_REQUESTS):
        cache.add(str(number).encode(), request)
    cache.add(b"7", request)
    assert cache.get(b"0") == request
