"""The Host check: a page under a name of its own cannot use the operator API through DNS rebinding."""

import ssl
from datetime import UTC, datetime, timedelta
from socket import gethostname

import pytest
import trustme

from forewarn.operator.hosts import CERTIFICATE_INTERVAL, AllowedHosts, certificate_names
from tests.operator.running_api import TOKEN, run_api


def server_context(*names: str, expires_at: datetime | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certify(context, *names, expires_at=expires_at)
    return context


def certify(context: ssl.SSLContext, *names: str, expires_at: datetime | None = None) -> None:
    trustme.CA().issue_cert(*names, not_after=expires_at).configure_cert(context)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "10.1.2.3:8170",
        "[::1]",
        "[2001:db8::1]:8170",
        "localhost",
        "LOCALHOST:8170",
        "forewarn",
        "forewarn:8170",
        "web.localhost",
        "host.docker.internal",
        gethostname(),
    ],
)
def test_addresses_and_names_that_cannot_be_registered_are_allowed(host: str) -> None:
    assert AllowedHosts().allows(host, now=0)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8170", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example."]
)
def test_other_names_are_refused(host: str) -> None:
    assert not AllowedHosts().allows(host, now=0)
    assert not AllowedHosts(["forewarn.example", "*.ops.example"]).allows(host, now=0)
    assert not AllowedHosts(tls=server_context("forewarn.example")).allows(host, now=0)
    assert AllowedHosts(["*"]).allows(host, now=0)


def test_names_of_the_settings_are_allowed() -> None:
    allowed = AllowedHosts(["Forewarn.Example", "*.ops.example"])
    for host in ("forewarn.example", "FOREWARN.EXAMPLE:8170", "forewarn.example.", "a.ops.example"):
        assert allowed.allows(host, now=0)
    assert not allowed.allows("ops.example", now=0)


@pytest.mark.parametrize("expires_at", [None, datetime.now(UTC) - timedelta(days=1)], ids=["valid", "expired"])
def test_names_of_the_certificate_are_read(expires_at: datetime | None) -> None:
    context = server_context("forewarn.example", "*.ops.example", "10.0.0.1", expires_at=expires_at)
    assert certificate_names(context) >= {"forewarn.example", "*.ops.example"}
    assert AllowedHosts(tls=context).allows("a.ops.example", now=0)


def test_renewed_certificate_has_its_own_names() -> None:
    context = server_context("old.example")
    allowed = AllowedHosts(tls=context)
    assert allowed.allows("old.example", now=0)
    certify(context, "new.example")
    assert not allowed.allows("new.example", now=1)
    assert allowed.allows("new.example", now=CERTIFICATE_INTERVAL)
    assert not allowed.allows("old.example", now=CERTIFICATE_INTERVAL)


def test_certificate_that_cannot_be_read_allows_any_name() -> None:
    """A browser refuses a certificate without the name of its page, so the check is only a second barrier."""
    assert certificate_names(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) == {"*"}


async def test_request_for_another_host_is_421_even_with_a_token() -> None:
    async with run_api() as service:
        refused = await service.request("GET", "/v1/vms", Host="evil.example:8170")
        absolute = await service.raw(
            f"GET http://evil.example/v1/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        probe = await service.request("GET", "/healthz", Host="evil.example", token=None)
        served = await service.request("GET", "/v1/vms", Host="localhost:8170")
    assert (refused.status, refused.json["error"]) == (
        421,
        {
            "code": "host-not-allowed",
            "message": "evil.example is not a known name of this service; use its address, or add the name to the "
            "setting operator_hosts",
            "details": {},
        },
    )
    assert absolute.startswith(b"HTTP/1.1 421 ")
    assert (probe.status, served.status) == (200, 200)


async def test_request_without_a_host_is_served() -> None:
    """HTTP/1.0, as some health checks use it; browsers always send a host."""
    async with run_api() as service:
        answer = await service.raw(f"GET /v1/vms HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
