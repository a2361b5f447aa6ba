"""HTTP as bytes on a socket: whatever is asked, right or wrong, and whatever is answered, to the last byte."""

import re
import socket
import time
from contextlib import suppress
from typing import Self

import msgspec

from forewarn.client.endpoint import Endpoint
from forewarn.wire.protocol import NEWEST_VERSION

METADATA = ("Metadata", "true")
SCHEDULED_EVENTS = "/metadata/scheduledevents"

LARGEST_ANSWER = 16 * 1024 * 1024
LONGEST_QUOTE = 300

CONTINUE, NOT_MODIFIED, NO_CONTENT = 100, 304, 204

_STATUS_LINE = re.compile(r"HTTP/(\d\.\d) (\d{3})(?: (.*))?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;.*)?")


def excerpt(text: str | bytes, limit: int = LONGEST_QUOTE) -> str:
    """Quote what an endpoint has sent: in one line, every byte to be seen, and not too much of it."""
    whole = text.decode(errors="replace") if isinstance(text, bytes) else text
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in whole[:limit])
    return f"{shown}…" if len(whole) > limit else shown


class Unanswered(Exception):
    """No whole answer came; the message says why."""


class TooLate(Unanswered):
    """The other side took too long."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, exactly as it is to be sent."""

    method: str = "GET"
    target: str = f"{SCHEDULED_EVENTS}?api-version={NEWEST_VERSION}"
    headers: tuple[tuple[str, str], ...] = (METADATA,)
    body: bytes | None = None
    http: str = "1.1"
    connection: str | None = "close"

    def __str__(self) -> str:
        """Say what was sent, as far as it is not what is sent always: whoever mends an endpoint must see that."""
        parts = [f"{self.method} {self.target}"]
        about = [pair for pair in self.headers if pair[0].lower() == METADATA[0].lower()]
        told = [pair for pair in self.headers if about != [METADATA] or pair != METADATA]
        if told:
            parts.append(f"with {', '.join(f'{name}: {excerpt(value, 40)}'.strip() for name, value in told)}")
        if not about:
            parts.append("without Metadata: true")
        if self.http != "1.1":
            parts.append(f"in HTTP/{self.http}")
        if self.body is not None:
            parts.append(f"with the body {excerpt(self.body, 80) or 'of no bytes'}")
        return " ".join(parts)

    def head(self, host: str) -> bytes:
        """Write it without its body."""
        fields = [("Host", host), *self.headers]
        if self.connection is not None:
            fields.append(("Connection", self.connection))
        if self.body is not None:
            fields.append(("Content-Length", str(len(self.body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return f"{self.method} {self.target} HTTP/{self.http}\r\n{lines}\r\n".encode("latin-1")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it was received, chunks put together."""

    status: int
    reason: str = ""
    http: str = "1.1"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __str__(self) -> str:
        quoted = excerpt(self.body)
        return f"{self.status} {self.reason}".strip() + (f": {quoted}" if quoted else "")

    def header(self, name: str) -> str | None:
        """Return the value of a header; the name is given in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class Line:
    """A connection to the endpoint. Every wait on it ends after `timeout` seconds."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._host = str(endpoint).removeprefix("http://")
        self._timeout = timeout
        self._unread = b""
        try:
            self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout)
        except OSError as error:
            raise Unanswered(f"no connection: {_why(error)}") from error
        # Small packets that wait for each other would make a slow endpoint of a fast one.
        with suppress(OSError):  # some systems refuse it on a connection that was ended already
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the number by which several lines can be waited for at once."""
        return self._socket.fileno()

    def send(self, request: Request) -> None:
        """Send a request with its body."""
        self.send_bytes(request.head(self._host) + (request.body or b""))

    def send_head(self, request: Request) -> None:
        """Send a request without its body."""
        self.send_bytes(request.head(self._host))

    def send_bytes(self, sent: bytes) -> None:
        """Send anything. If the other side does not take all of it, it may have answered all the same."""
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(sent)
        except OSError:
            return

    def answer(self, request: Request | None = None, *, within: float | None = None) -> Answer:
        """Read the next answer to its end."""
        give_up_at = time.monotonic() + (self._timeout if within is None else within)
        http, status, reason, headers = self._head(give_up_at)
        begun = Answer(status=status, reason=reason, http=http, headers=headers)
        is_to_head = request is not None and request.method == "HEAD"
        if is_to_head or status < 200 or status in (NO_CONTENT, NOT_MODIFIED):
            return begun
        return msgspec.structs.replace(begun, body=self._body(begun, give_up_at))

    def rest(self, within: float) -> tuple[bytes, bool]:
        """Return what else comes until the other side closes, and whether it does so in time."""
        give_up_at = time.monotonic() + within
        try:
            while self._receive(give_up_at):
                pass
        except TooLate:
            return self._unread, False
        except Unanswered:
            # It was closed in anger; whatever is left unread on the other side, that is an end as well.
            return self._unread, True
        return self._unread, True

    def _head(self, give_up_at: float) -> tuple[str, int, str, tuple[tuple[str, str], ...]]:
        first, *fields = self._until(b"\r\n\r\n", give_up_at).decode("latin-1").split("\r\n")
        found = _STATUS_LINE.fullmatch(first)
        if found is None:
            raise Unanswered(f"the answer is not HTTP: {excerpt(first)}")
        parted = (field.partition(":") for field in fields)
        return found[1], int(found[2]), found[3] or "", tuple((name, value.strip(" \t")) for name, _, value in parted)

    def _body(self, answer: Answer, give_up_at: float) -> bytes:
        if (answer.header("transfer-encoding") or "").lower() == "chunked":
            return self._chunks(give_up_at)
        length = answer.header("content-length")
        if length is None:
            while self._receive(give_up_at):
                pass
            return self._take(len(self._unread), give_up_at)
        if not _LENGTH.fullmatch(length):
            raise Unanswered(f"the answer has no length, but {excerpt(length)}")
        return self._take(int(length), give_up_at)

    def _chunks(self, give_up_at: float) -> bytes:
        whole = b""
        while True:
            size = _CHUNK_SIZE.fullmatch(self._until(b"\r\n", give_up_at))
            if size is None:
                raise Unanswered("a chunk of the answer has no size")
            if not (count := int(size[1], 16)):
                break
            whole += self._take(count, give_up_at)
            if len(whole) > LARGEST_ANSWER:
                raise Unanswered(f"the answer is longer than {LARGEST_ANSWER} bytes")
            self._until(b"\r\n", give_up_at)
        while self._until(b"\r\n", give_up_at):
            pass
        return whole

    def _until(self, end: bytes, give_up_at: float) -> bytes:
        while end not in self._unread:
            self._need_more(give_up_at)
        taken, _, self._unread = self._unread.partition(end)
        return taken

    def _take(self, count: int, give_up_at: float) -> bytes:
        while len(self._unread) < count:
            self._need_more(give_up_at)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _need_more(self, give_up_at: float) -> None:
        if not self._receive(give_up_at):
            raise Unanswered("the connection was closed before the answer was whole")

    def _receive(self, give_up_at: float) -> bool:
        """Wait for some bytes; tell whether there are any, or the other side has closed."""
        left = give_up_at - time.monotonic()
        if left <= 0:
            raise TooLate("no whole answer came in time")
        self._socket.settimeout(left)
        try:
            received = self._socket.recv(65_536)
        except TimeoutError:
            raise TooLate("no whole answer came in time") from None
        except OSError as error:
            raise Unanswered(f"no whole answer came: {_why(error)}") from error
        self._unread += received
        if len(self._unread) > LARGEST_ANSWER:
            raise Unanswered(f"the answer is longer than {LARGEST_ANSWER} bytes")
        return bool(received)


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
