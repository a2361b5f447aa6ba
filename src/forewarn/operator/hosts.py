"""Host check: the operator API answers only under names that are its own, against DNS rebinding.

In a DNS rebinding attack, a page in a browser lets its own name point to this machine, and the browser takes responses
of this service for the page's. Such a name is a public one with a dot. So addresses, and names that cannot be
registered, are always allowed; other names must be known.
"""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import ip_address
from math import inf
from socket import gethostname

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.operator.auth import OPEN_PATHS
from forewarn.operator.error_responses import send_error

PRIVATE_SUFFIXES = (".localhost", ".internal")
"""Endings of names that are reserved for use within a machine or a network."""

ANY_HOST = "*"

CERTIFICATE_INTERVAL = 10.0
"""How often, in seconds, the names of the certificate are read at most; a reload can change them."""

NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: an expired certificate has names, too."""


class AllowedHosts:
    """The names of the service: those of the settings, of the machine and of the certificate."""

    def __init__(self, names: Iterable[str] = (), tls: ssl.SSLContext | None = None) -> None:
        self._names = frozenset(name.lower() for name in (*names, gethostname()))
        self._tls = tls
        self._certified: frozenset[str] = frozenset()
        self._read_at = -inf

    def allows(self, header: str, *, now: float) -> bool:
        """Return whether a request with this `Host` header is meant for this service."""
        host = _host_name(header)
        if "." not in host or host.endswith(PRIVATE_SUFFIXES) or _is_address(host) or _matches(host, self._names):
            return True
        if self._tls is not None and now - self._read_at >= CERTIFICATE_INTERVAL:
            self._certified, self._read_at = certificate_names(self._tls), now
        return _matches(host, self._certified)


class HostMiddleware:
    """ASGI middleware that refuses requests for other hosts, except health checks."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or answer 421."""
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        now = asyncio.get_running_loop().time()
        if scope["type"] != ScopeType.HTTP or scope["path"] in OPEN_PATHS or self._hosts.allows(host, now=now):
            await self._app(scope, receive, send)
            return
        message = f"{_host_name(host)} is not a known name of this service; use its address, or add the name to the "
        await send_error(send, "host-not-allowed", f"{message}setting operator_hosts")


def certificate_names(server: ssl.SSLContext) -> frozenset[str]:
    """Return the names in the certificate of a server; any name if they cannot be read.

    Then the check is not needed: a browser refuses a certificate without the name of its page.
    """
    reader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reader.check_hostname, reader.verify_mode = False, ssl.CERT_NONE
    try:
        content = _handshake(server, reader).getpeercert(binary_form=True)
        reader.load_verify_locations(cadata=content or b"")
        reader.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(NO_CHECK_TIME)
        reader.verify_mode = ssl.CERT_REQUIRED  # only then are the fields decoded
        certificate = _handshake(server, reader).getpeercert() or {}
    except (ssl.SSLError, ValueError):
        return frozenset({ANY_HOST})
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [*certificate.get("subjectAltName", ()), *subject]
    return frozenset(str(name).lower() for kind, name in names if kind in ("DNS", "commonName"))


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Connect a client to the server in memory, and return the client."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    reading = client.wrap_bio(to_client, to_server)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (reading, serving):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return reading


def _host_name(header: str) -> str:
    """Return the host of a `Host` header, without its port."""
    host = header[: header.rindex("]") + 1] if "]" in header else header.partition(":")[0]
    return host.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host.strip("[]"))
        return True
    return False


def _matches(host: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(host, name) for name in names)
