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
"""Heads end with one, and so do chunked bodies."""

FRAMING = ("content-length", "transfer-encoding")

CHUNK_OVERHEAD = 6
"""How many bytes a body's byte takes on the wire at the most, unless there are extensions: in a chunk of its own."""

KEEP_ALIVE = b""
KEEP_ALIVE_HTTP_1_0 = b"Connection: keep-alive\r\n"
CONNECTION_CLOSE = b"Connection: close\r\n"
"""What an answer says about the connection; an HTTP/1.1 client expects it to stay open."""


CACHED_REQUEST_BYTES = 2048
"""Larger requests are not cached: no client that polls every second sends more."""

CACHED_REQUESTS = 1024
"""How many different requests are cached for all connections together."""


class CachedRequest(NamedTuple):
    """A request without a body, parsed and routed, and the `Connection` header of its response."""

    route: GuestRequest
    connection_line: bytes


class RequestCache:
    """Parsed requests by their exact bytes, shared by all connections: most pollers connect for every request, and
    send the same bytes each time.

    What a request means depends on its bytes only, so a VM cannot be given another VM's answer. The oldest request
    leaves when there are too many: a guest that varies its requests costs the others some speed, but no memory.
    """

    def __init__(self) -> None:
        self._requests: dict[bytes, CachedRequest] = {}
        self.get = self._requests.get

    def add(self, data: bytes, request: CachedRequest) -> None:
        """Remember the request that consists of exactly these bytes."""
        if len(self._requests) >= CACHED_REQUESTS and data not in self._requests:
            del self._requests[next(iter(self._requests))]
        self._requests[data] = request


class InvalidRequest(BaseError):
    """The bytes are not a request, or too large to be one. After this the connection can only be closed."""

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
        """Begin with another request."""
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
        """Whether nothing of the present request has come yet."""
        return self._head_bytes == 0

    @property
    def has_body(self) -> bool:
        """Whether the request came with a body."""
        return self._body_bytes > 0 or self._body_left is not None

    @property
    def body(self) -> bytes:
        """The body as far as it has come, decoded from its chunks."""
        return b"".join(self._body)

    def read(self, data: bytes, start: int) -> int:
        """Read on from `start` to the end of the head, of the body, or of the data; return where that is."""
        if data[start] in LINE_END and self.is_at_start and (start := self._skip_empty_lines(data, start)) == len(data):
            return start
        end = self._end(data, start)
        self._count(end - start)
        self._tail = (self._tail + data[max(start, end - 3) : end])[-3:]
        self._feed(data if end - start == len(data) else memoryview(data)[start:end])
        return end

    def close(self) -> None:
        """Read no more. Reader and parser know each other: to part them spares the garbage collector the work."""
        del self._parser

    def _skip_empty_lines(self, data: bytes, start: int) -> int:
        """Return where the request line begins: some clients end a body with an empty line too many."""
        begin = len(data) - len(data[start:].lstrip(LINE_END))
        self._empty_bytes += begin - start
        if self._empty_bytes > self._limits.header_bytes:
            raise InvalidRequest(error_responses.HEADER_TOO_LARGE)
        return begin

    def _count(self, size: int) -> None:
        """Bound what is read of a head, and of a body in chunks: most of it may be anything but the body."""
        if self.state is ParseState.HEAD:
            self._head_bytes += size
            if self._head_bytes > self._limits.header_bytes:
                raise InvalidRequest(error_responses.HEADER_TOO_LARGE)
        else:
            self._wire_bytes += size
            if self._wire_bytes > CHUNK_OVERHEAD * self._limits.body_bytes + self._limits.header_bytes:
                raise InvalidRequest(error_responses.BODY_TOO_LARGE)

    def _end(self, data: bytes, start: int) -> int:
        """Return how far the parser may be fed without the danger that it reads into the next request."""
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
        """Find out how the body ends. The parser has refused what is in conflict; what it tolerates is refused here."""
        codings = self.head.values("transfer-encoding")
        if not codings:
            self._body_left = int(self.head.values("content-length")[0])
            if self._body_left > self._limits.body_bytes:
                raise InvalidRequest(error_responses.BODY_TOO_LARGE)
        elif [coding.lower() for coding in codings] != ["chunked"] or version == "1.0":
            raise InvalidRequest(malformed_request("of all transfer encodings only chunked is understood, in HTTP/1.1"))

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1, as if no upgrade had been offered.

        The parser would leave the body to the other protocol. A fresh one, told of the body alone, reads it.
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
        """Take a piece of the target."""
        if self.state is ParseState.HEAD:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, unless there are too many; those behind a chunked body tell nothing that we want to know."""
        if self.state is ParseState.HEAD and len(self._headers) <= self._limits.header_fields:
            self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Take note that the head is complete, and of what the parser will have forgotten when the request is."""
        self._is_keep_alive = self._parser.should_keep_alive()
        self.state = ParseState.BODY

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body, unless it is too much already."""
        self._body_bytes += len(piece)
        if self._body_bytes <= self._limits.body_bytes:
            self._body.append(piece)

    def on_message_complete(self) -> None:
        """Take note that the request is complete."""
        self.state = ParseState.DONE
