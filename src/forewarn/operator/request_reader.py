"""Framing of requests: where each one ends. Whatever another server could read differently is refused.

A proxy in front of the service decides where a request ends, and the service decides again. If they disagree, the rest
of one caller's request becomes the start of another's (request smuggling). The HTTP library is tolerant where RFC 9112
allows it: it accepts bare line feeds, folded header lines and repeated lengths. So every byte passes through here
first, request by request. The library checks the same bytes again.
"""

import re
from enum import Enum, auto
from http import HTTPStatus

import h11

HEAD_BYTES = 16 * 1024
"""The limit for the head of a request, for each line that frames a chunk of its body, and for its trailers."""

LINE_END = b"\r\n"
BLANK_LINE = LINE_END * 2

VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")

CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""No line may contain one; carriage returns and line feeds occur only in line ends (RFC 9112 section 2.2)."""

BARE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")

TOKEN_CHARACTER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]")
LENGTH = re.compile(rb"[0-9]{1,18}")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})([ \t]*;[\x09\x20-\x7e\x80-\xff]*)?")
"""The line before a chunk. Extensions are ignored, as RFC 9112 section 7.1.1 demands."""

HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
ORIGIN_FORM = re.compile(rb"/[^#]*|\*")
ABSOLUTE_FORM = re.compile(rb"https?://(?P<host>[^/?#@]+)(?P<rest>([/?][^#]*)?)", re.IGNORECASE)
"""Request targets (RFC 9112 section 3.2); that of CONNECT is another, and no resource of this server."""


class _Part(Enum):
    """The part of a request that comes next."""

    HEAD = auto()
    BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    TRAILERS = auto()
    END = auto()


class RequestReader:
    """The received bytes of a connection, released piece by piece, and never past the end of the current request."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._part = _Part.HEAD
        self._left = 0
        """How many bytes of the body or of the chunk, with its line end, are still to come."""
        self._checked = 0
        """How many bytes of an incomplete line or head are already checked."""
        self.is_closed = False
        """Whether the caller has closed its side of the connection."""

    def __len__(self) -> int:
        """Return how many bytes are buffered."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Add received bytes; none mean that the caller has closed its side."""
        self._buffer += data
        self.is_closed = self.is_closed or not data

    def start_next(self) -> None:
        """Release the next request, too."""
        self._part = _Part.HEAD

    def take(self) -> bytes:
        """Return the bytes of the current request that are complete and valid; none if more are needed.

        Raise h11's error for a caller that breaks the protocol.
        """
        match self._part:
            case _Part.HEAD:
                return self._take_head()
            case _Part.BODY | _Part.CHUNK:
                return self._take_body()
            case _Part.CHUNK_SIZE:
                return self._take_chunk_size()
            case _Part.TRAILERS:
                return self._take_trailers()
            case _Part.END:
                return b""

    def _take_head(self) -> bytes:
        while self._buffer.startswith(LINE_END):  # some clients send an extra one after a body
            del self._buffer[:2]
        if self._buffer and self._buffer != b"\r" and not TOKEN_CHARACTER.match(self._buffer):
            raise h11.RemoteProtocolError("illegal request line")
        head = self._take_lines(BLANK_LINE)
        if head:
            request_line, *lines = head.removesuffix(BLANK_LINE).split(LINE_END)
            version = _check_request_line(request_line)
            self._frame(version, _check_fields(lines))
        return head

    def _frame(self, version: bytes, fields: list[tuple[bytes, bytes]]) -> None:
        """Determine where the body ends (RFC 9112 section 6.3)."""
        lengths = [value for name, value in fields if name == b"content-length"]
        codings = [
            coding.strip().lower()
            for name, value in fields
            if name == b"transfer-encoding"
            for coding in value.split(b",")
        ]
        hosts = [value for name, value in fields if name == b"host"]
        if len(hosts) > 1 or not all(map(HOST.fullmatch, hosts)):
            raise h11.RemoteProtocolError("the Host header must be one host name or address, with an optional port")
        if lengths and codings:
            # Proxies differ in which of the two they use.
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding are mutually exclusive")
        if len(lengths) > 1 or not all(map(LENGTH.fullmatch, lengths)):
            raise h11.RemoteProtocolError("the Content-Length header must be one number")
        if codings and version != b"HTTP/1.1":
            raise h11.RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding")
        if codings and (codings[-1] != b"chunked" or codings.count(b"chunked") > 1):
            raise h11.RemoteProtocolError("the last and only the last Transfer-Encoding must be chunked")
        self._left = int(lengths[0]) if lengths else 0
        self._part = _Part.CHUNK_SIZE if codings else _Part.BODY if self._left else _Part.END

    def _take_body(self) -> bytes:
        taken = bytes(self._buffer[: self._left])
        del self._buffer[: len(taken)]
        self._left -= len(taken)
        if not self._left:
            self._part = _Part.END if self._part is _Part.BODY else _Part.CHUNK_SIZE
        return taken

    def _take_chunk_size(self) -> bytes:
        line = self._take_lines(LINE_END)
        if line:
            found = CHUNK_SIZE.fullmatch(line.removesuffix(LINE_END))
            if found is None:
                raise h11.RemoteProtocolError("illegal chunk header")
            size = int(found[1], 16)
            self._left = size + len(LINE_END)
            self._part = _Part.CHUNK if size else _Part.TRAILERS
        return line

    def _take_trailers(self) -> bytes:
        if self._buffer.startswith(LINE_END):
            del self._buffer[: len(LINE_END)]
            self._part = _Part.END
            return LINE_END
        trailers = b"" if self._buffer == b"\r" else self._take_lines(BLANK_LINE)
        if trailers:
            _check_fields(trailers.removesuffix(BLANK_LINE).split(LINE_END))
            self._part = _Part.END
        return trailers

    def _take_lines(self, end: bytes) -> bytes:
        """Return everything up to the end that is searched for; refuse other line ends, and too many bytes."""
        start = max(0, self._checked - len(end))
        found = self._buffer.find(end, start)
        size = found + len(end) if found >= 0 else len(self._buffer)
        if size > HEAD_BYTES:
            raise h11.RemoteProtocolError("too large", error_status_hint=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if BARE_LINE_END.search(self._buffer, start, size):
            raise h11.RemoteProtocolError("a carriage return or line feed occurs alone")
        self._checked = size if found < 0 else 0
        if found < 0:
            return b""
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _check_request_line(line: bytes) -> bytes:
    """Refuse a request line that names no resource of this server; return the version."""
    method, _, rest = line.partition(b" ")
    target, _, version = rest.rpartition(b" ")
    if version not in VERSIONS:
        raise h11.RemoteProtocolError("the request line must end with HTTP/1.1 or HTTP/1.0")
    absolute = ABSOLUTE_FORM.fullmatch(target)
    is_resource = ORIGIN_FORM.fullmatch(target) if absolute is None else HOST.fullmatch(absolute["host"])
    if not is_resource and method != b"CONNECT":
        raise h11.RemoteProtocolError("the target must be a path, or a URL with http or https")
    return version


def _check_fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return names and values of header or trailer lines; the library checks the characters of the names."""
    fields = []
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            raise h11.RemoteProtocolError("a header line begins with a space: folded lines are obsolete")
        if CONTROL_CHARACTER.search(line):
            raise h11.RemoteProtocolError("a header line contains a control character")
        name, _, value = line.partition(b":")
        fields.append((name.lower(), value.strip(b" \t")))
    return fields
