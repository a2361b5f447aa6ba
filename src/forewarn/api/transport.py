"""HTTP transport of the API client: http.client, TLS verification, and foreign errors wrapped as ApiError."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from forewarn.api.errors import (
    CertificateError,
    CertificateMismatch,
    ConnectionClosed,
    InvalidResponse,
    InvalidUrl,
    NotFound,
    RequestRefused,
    ServiceUnreachable,
)
from forewarn.api.v1 import AFTER_HEADER, POSITION_HEADER, ErrorResponse
from forewarn.clock import SystemClock
from forewarn.files import read_file, write_file

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

NAME_MISMATCHES = frozenset({62, 63, 64})
"""OpenSSL's codes (X509_V_ERR) for a certificate of another host, mail address or IP address."""

MAX_POSITIONS = 4
"""How many cells a client remembers; the oldest is forgotten."""

LIFETIME = 60.0
"""How long, in seconds, a position counts."""

MAX_FILE_BYTES = 1024

MAX_NAMES = 8
"""How many names of a certificate an error lists."""


class LastPositions:
    """The newest position of each cell that has answered, kept in a file for later programs if there is one.

    They count for a minute: no replica is behind for longer, but a cell that was restored may never reach them.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._numbers: dict[str, int] = {}
        self._grew_at = 0.0
        with suppress(OSError, ValueError):
            if file is not None and SystemClock().now().timestamp() - file.stat().st_mtime < LIFETIME:
                for line in read_file(file, MAX_FILE_BYTES).decode("ascii").split():
                    self.take(line)

    @property
    def header(self) -> str | None:
        """The positions to wait for; None if there are none."""
        if time.monotonic() - self._grew_at > LIFETIME:
            self._numbers.clear()
        return ", ".join(f"{cell}-{number}" for cell, number in self._numbers.items()) or None

    def take(self, position: str | None, *, is_change: bool = False) -> None:
        """Remember the position of a response. That of a change is kept in the file."""
        cell, dash, digits = (position or "").rpartition("-")
        if not dash or not digits.isdigit() or int(digits) <= self._numbers.get(cell, -1):
            return
        self._numbers.pop(cell, None)
        self._numbers[cell] = int(digits)
        self._grew_at = time.monotonic()
        while len(self._numbers) > MAX_POSITIONS:
            del self._numbers[next(iter(self._numbers))]
        if is_change and self._file is not None:
            with suppress(OSError):  # then the next program does not wait for what this one has changed
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_file(self._file, (self.header or "").replace(", ", "\n").encode())


class Transport:
    """The transport to one service. Each request opens a connection.

    A request asks for everything that earlier responses had, whichever control node answers it.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float, ca: Path | None = None, pinned: Path | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._parts = _parse_url(url)
        self._token = token
        self._timeout = timeout
        self._ca, self._pinned = ca, pinned
        self._ssl_context = _create_ssl_context(ca, pinned) if self._parts.scheme == "https" else None
        self.positions = LastPositions()
        """Shared by the transports to one service."""

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Send a request and return the body of the response; raise RequestRefused for an error response."""
        with self._response(method, path, body, headers) as response:
            content = response.read(MAX_RESPONSE_BYTES)
            if response.length:
                raise self._connection_lost(method)
            if response.status >= 300:
                raise self.refusal(response.status, content)
            return content

    def lines(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Send a request and yield the response line by line, as it arrives."""
        with self._response(method, path, body, headers) as response:
            if response.status >= 300:
                raise self.refusal(response.status, response.read(MAX_RESPONSE_BYTES))
            while line := response.readline():
                yield line.rstrip(b"\r\n")

    def chunks(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Send a request and yield the response in chunks."""
        with self._response(method, path, None, headers) as response:
            if response.status >= 300:
                raise self.refusal(response.status, response.read(MAX_RESPONSE_BYTES))
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk

    @contextmanager
    def _response(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        is_sent = False
        try:
            target = self._parts.path.rstrip("/") + path
            after = {} if (positions := self.positions.header) is None else {AFTER_HEADER: positions}
            connection.request(method, target, body, {"Authorization": f"Bearer {self._token}", **after, **headers})
            is_sent = True
            with connection.getresponse() as response:
                self.positions.take(response.headers.get(POSITION_HEADER), is_change=method != "GET")
                yield response
        except ConnectionRefusedError as error:
            raise ServiceUnreachable(self.url, f"{error.strerror}; is it running?") from error
        except ssl.SSLCertVerificationError as error:
            raise self._certificate_error(error) from error
        except (ConnectionResetError, BrokenPipeError, http.client.IncompleteRead) as error:
            if is_sent:
                raise self._connection_lost(method) from error
            raise ServiceUnreachable(self.url, str(error)) from error
        except OSError as error:
            raise ServiceUnreachable(self.url, error.strerror or str(error) or type(error).__name__) from error
        except http.client.HTTPException as error:
            raise InvalidResponse(self.url, f"{type(error).__name__} {error}".strip()) from error
        finally:
            connection.close()

    def _certificate_error(self, error: ssl.SSLCertVerificationError) -> CertificateError:
        """Return the error; if only the name is wrong, with the names for which the certificate is valid."""
        if error.verify_code in NAME_MISMATCHES and (names := self._certificate_names()):
            port = "" if self._parts.port is None else f":{self._parts.port}"
            example = f"https://{f'[{names[0]}]' if ':' in names[0] else names[0]}{port}{self._parts.path}"
            return CertificateMismatch(
                self.url, error.verify_message, self._parts.hostname or "", ", ".join(names[:MAX_NAMES]), example
            )
        return CertificateError(self.url, error.verify_message)

    def _certificate_names(self) -> list[str]:
        """Return the names of the service's certificate, which is verified except for the name."""
        context = _create_ssl_context(self._ca, self._pinned)
        context.check_hostname = False
        address = self._parts.hostname or "", self._parts.port or http.client.HTTPS_PORT
        try:
            with (
                socket.create_connection(address, timeout=self._timeout) as plain,
                context.wrap_socket(plain, server_hostname=self._parts.hostname) as secured,
            ):
                certificate: Mapping[str, Any] = secured.getpeercert() or {}
        except OSError:
            return []
        return [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]

    def _connection_lost(self, method: str) -> ConnectionClosed:
        """Return the error with advice; a GET has changed nothing, so it can be repeated."""
        if method != "GET":
            return ConnectionClosed(self.url)
        advice = "send the request again" if self._ssl_context is not None else "does the service use https?"
        return ConnectionClosed(self.url, f"the connection ended before the response was complete; {advice}")

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._ssl_context is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._ssl_context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def refusal(self, status: int, content: bytes) -> RequestRefused:
        """Return the error for an error response."""
        try:
            error = msgspec.json.decode(content, type=ErrorResponse).error
        except msgspec.MsgspecError as wrong:
            raise InvalidResponse(self.url, f"status {status}, {wrong}") from wrong
        kind = NotFound if status == 404 else RequestRefused
        return kind(status, error.code, error.message, error.details)


def _create_ssl_context(ca: Path | None, pinned: Path | None) -> ssl.SSLContext:
    """Trust the system's CAs, or the CAs in `ca`, or only the certificate `pinned` itself."""
    try:
        if ca is not None or pinned is None:
            return ssl.create_default_context(cafile=ca)
        context = ssl.create_default_context(cadata=_first_certificate(pinned))
    except OSError as error:
        raise CertificateError(
            str(ca or pinned), f"the file has no usable certificates ({error.strerror or error})"
        ) from error
    # The owner of this certificate's key is the service, so the host name does not matter.
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def _first_certificate(file: Path) -> str:
    """Return the first certificate of the file; those of its CAs follow it."""
    text, end, _ = file.read_text(encoding="ascii", errors="replace").partition("-----END CERTIFICATE-----")
    return text + end


def _parse_url(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        is_plain = url.isprintable() and " " not in url
        if is_plain and parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    raise InvalidUrl(url)
