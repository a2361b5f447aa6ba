"""HTTP request parser for one connection: llhttp with limits, one request at a time, never past its end."""

from enum import Enum
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from forewarn.core.base_error import BaseError
from forewarn.guest.limits import Limits
from forewarn.wire import error_responses
from forewarn.wire.error_responses import ErrorResponse, malformed_request
from forewarn.wire.request import GuestRequest, RequestHead

LINE_END = b"\r\n"
BLANK_LINE = LINE_END * 2
"""Ends the headers, and a chunked body."""

FRAMING = ("content-length", "transfer-encoding")

CHUNK_OVERHEAD = 6
"""Maximum number of bytes on the wire per byte of a body (one chunk per byte), without chunk extensions."""

KEEP_ALIVE = b""
KEEP_ALIVE_HTTP_1_0 = b"Connection: keep-alive\r\n"
CONNECTION_CLOSE = b"Connection: close\r\n"
"""The `Connection` header of a response; an HTTP/1.1 client needs none to keep the connection open."""


CACHED_REQUEST_BYTES = 2048
"""Larger requests are not cached: no polling client sends larger ones."""

CACHED_REQUESTS = 1024
"""How many different requests are cached, for all connections together."""


class CachedRequest(NamedTuple):
    """A request without a body, parsed and routed, and the `Connection` header of its response."""

    route: GuestRequest
    connection_line: bytes


class RequestCache:
    """Parsed requests by their exact bytes, shared by all connections: most clients open a connection for every poll,
    and send the same bytes each time.

    The meaning of a request depends only on its bytes, so a VM cannot get another VM's response. A full cache drops its
    oldest request: a guest that varies its requests costs the others some speed, but no memory.
    """

    def __init__(self) -> None:
        self._requests: dict[bytes, CachedRequest] = {}
        self.get = self._requests.get

    def add(self, data: bytes, request: CachedRequest) -> None:
        """Cache the request that consists of exactly these bytes."""
        if len(self._requests) >= CACHED_REQUESTS and data not in self._requests:
            del self._requests[next(iter(self._requests))]
        self._requests[data] = request


class InvalidRequest(BaseError):
    """The bytes are not a valid request, or exceed a limit. Afterwards the connection can only be closed."""

    template = "{response.reason.value}"
    response: ErrorResponse


class ParseState(Enum):
    """State of the parser: how far the current request has been read."""

    HEAD = "head"
    BODY = "body"
    DONE = "done"


class RequestParser:
    """Parses the requests of one connection; its properties are those of the current request until `start_next`.

    Methods named `on_…` are called by the parser and must not raise.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_left",
        "_empty_bytes",
        "_head_bytes",
        "_headers",
        "_is_keep_alive",
        "_limits",
        "_parser",
        "_tail",
        "_url",
        "_wire_bytes",
        "connection_line",
        "expects_continue",
        "head",
        "state",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = HttpRequestParser(self)
        self.start_next()

    def start_next(self) -> None:
        """Prepare for the next request."""
        self.state = ParseState.HEAD
        self.head = RequestHead("", "")
        self.connection_line = KEEP_ALIVE
        """The `Connection` header of the response to this request."""
        self.expects_continue = False
        """Whether the peer waits for `100 Continue` before it sends the body."""
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._empty_bytes = 0
        self._head_bytes = 0
        self._is_keep_alive = True
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._wire_bytes = 0
        self._body_left: int | None = None
        self._tail = b""

    @property
    def is_at_start(self) -> bool:
        """Whether no byte of the current request has arrived yet."""
        return self._head_bytes == 0

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        return self._body_bytes > 0 or self._body_left is not None

    @property
    def body(self) -> bytes:
        """The part of the body that has arrived, decoded from its chunks."""
        return b"".join(self._body)

    def read(self, data: bytes, start: int) -> int:
        """Parse from `start` to the end of the headers, the body or the data; return that position."""
        if data[start] in LINE_END and self.is_at_start and (start := self._skip_empty_lines(data, start)) == len(data):
            return start
        end = self._end(data, start)
        self._count(end - start)
        self._tail = (self._tail + data[max(start, end - 3) : end])[-3:]
        self._feed(data if end - start == len(data) else memoryview(data)[start:end])
        return end

    def close(self) -> None:
        """Stop parsing, and break the reference cycle with llhttp to save work for the garbage collector."""
        del self._parser

    def _skip_empty_lines(self, data: bytes, start: int) -> int:
        """Return the position of the request line: some clients send an extra empty line after a body."""
        begin = len(data) - len(data[start:].lstrip(LINE_END))
        self._empty_bytes += begin - start
        if self._empty_bytes > self._limits.header_bytes:
            raise InvalidRequest(error_responses.HEADER_TOO_LARGE)
        return begin

    def _count(self, size: int) -> None:
        """Limit the size of the headers, and of a chunked body including its framing."""
        if self.state is ParseState.HEAD:
            self._head_bytes += size
            if self._head_bytes > self._limits.header_bytes:
                raise InvalidRequest(error_responses.HEADER_TOO_LARGE)
        else:
            self._wire_bytes += size
            if self._wire_bytes > CHUNK_OVERHEAD * self._limits.body_bytes + self._limits.header_bytes:
                raise InvalidRequest(error_responses.BODY_TOO_LARGE)

    def _end(self, data: bytes, start: int) -> int:
        """Return how far the parser can be fed without reading into the next request."""
        if self._body_left is not None:
            end = min(start + self._body_left, len(data))
            self._body_left -= end - start
            return end
        seam = (self._tail + data[start : start + 3]).find(BLANK_LINE)
        if seam >= 0:
            return start + seam + len(BLANK_LINE) - len(self._tail)
        found = data.find(BLANK_LINE, start)
        return found + len(BLANK_LINE) if found >= 0 else len(data)

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._decline_upgrade()
        except HttpParserError as error:
            raise InvalidRequest(malformed_request(str(error))) from None
        if len(self._headers) > self._limits.header_fields:
            raise InvalidRequest(error_responses.HEADER_TOO_LARGE)
        if self._body_bytes > self._limits.body_bytes:
            raise InvalidRequest(error_responses.BODY_TOO_LARGE)
        if self.state is not ParseState.HEAD and not self.head.method:
            self._finish_head()

    def _finish_head(self) -> None:
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise InvalidRequest(malformed_request("HTTP/1.0 and HTTP/1.1 are spoken here"))
        self.head = RequestHead(self._parser.get_method().decode("latin-1"), self._url.decode("latin-1"), self._headers)
        self.connection_line = self._connection_line(version)
        if version == "1.1":
            self._check_expect()
        if self.state is ParseState.BODY:
            self._check_framing(version)

    def _connection_line(self, version: str) -> bytes:
        if not self._is_keep_alive or self.head.method == "CONNECT":
            return CONNECTION_CLOSE
        return KEEP_ALIVE if version == "1.1" else KEEP_ALIVE_HTTP_1_0

    def _check_expect(self) -> None:
        expected = {value.lower() for value in self.head.values("expect")}
        if expected - {"100-continue"}:
            raise InvalidRequest(error_responses.EXPECTATION_FAILED)
        self.expects_continue = bool(expected) and self.state is ParseState.BODY

    def _check_framing(self, version: str) -> None:
        """Determine how the body ends. llhttp refuses conflicting headers; this refuses what llhttp tolerates."""
        codings = self.head.values("transfer-encoding")
        if not codings:
            self._body_left = int(self.head.values("content-length")[0])
            if self._body_left > self._limits.body_bytes:
                raise InvalidRequest(error_responses.BODY_TOO_LARGE)
        elif [coding.lower() for coding in codings] != ["chunked"] or version == "1.0":
            raise InvalidRequest(malformed_request("of all transfer encodings only chunked is understood, in HTTP/1.1"))

    def _decline_upgrade(self) -> None:
        """Continue in HTTP/1.1, as if no upgrade had been offered.

        The parser would leave the body to the other protocol. A new parser with only the framing headers reads it.
        """
        framing = [(name, value) for name, value in self._headers if name.lower() in FRAMING]
        if self._parser.get_method() == b"CONNECT" or not framing:
            return
        self.state = ParseState.BODY
        self._finish_head()
        self._parser = HttpRequestParser(self)
        lines = "".join(f"{name}: {value}\r\n" for name, value in framing)
        self._feed(f"POST / HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        if self.state is ParseState.HEAD:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, up to the limit; trailers after a chunked body are ignored."""
        if self.state is ParseState.HEAD and len(self._headers) <= self._limits.header_fields:
            self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Mark the headers as complete, and save what the parser forgets at the end of the request."""
        self._is_keep_alive = self._parser.should_keep_alive()
        self.state = ParseState.BODY

    def on_body(self, piece: bytes) -> None:
        """Add a part of the body, up to the limit."""
        self._body_bytes += len(piece)
        if self._body_bytes <= self._limits.body_bytes:
            self._body.append(piece)

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        self.state = ParseState.DONE
