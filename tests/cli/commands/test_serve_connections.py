"""A service whose operator port is flooded with silent connections: guests and other operators are served.

Processes: for a limit of open files that applies to the service alone.
"""

import http.client
import json
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from forewarn.api.local_service import read_token
from tests.support.program import GUARD
from tests.support.serve_process import EVENTS, SETTINGS, ServeProcess, get, run_serve

TLS = '\n[tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n'

UNLIMITED_GUESTS = '\n[guest]\nrequests_per_second = "none"\n'

FILES = 600
"""The limit of open files of the service: operators get 118 connections, and each address 88 of them."""

LOW_LIMIT = ("sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh")

SILENT = 1_100
HANDSHAKES = 40
"""How many of the silent connections complete their TLS handshake first."""

OTHER_ADDRESS = "127.0.0.2"


@pytest.fixture(autouse=True)
def open_files() -> Iterator[None]:
    """Let this process open as many connections as the test needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["TLS", "plain HTTP"])
def context(tmp_path: Path, request: pytest.FixtureRequest) -> ssl.SSLContext | None:
    """The TLS context of the clients; None without TLS."""
    if request.param != "TLS":
        return None
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    return trusting


def open_silent(stack: ExitStack, service: ServeProcess, context: ssl.SSLContext | None) -> None:
    """Open many connections that send nothing, of which the service closes most."""
    url = urlsplit(service.operator_url)
    for number in range(SILENT):
        connection = stack.enter_context(socket.create_connection((url.hostname, url.port), timeout=GUARD))
        if context is not None and number < HANDSHAKES:
            with suppress(OSError):  # refused, if earlier connections are still open
                stack.enter_context(context.wrap_socket(connection, server_hostname=url.hostname))


def ask(service: ServeProcess, context: ssl.SSLContext | None, path: str, address: str = OTHER_ADDRESS) -> Any:
    """Send a request to the operator API from an address of this machine, and return the JSON of the response."""
    url = urlsplit(service.operator_url)
    assert url.hostname is not None
    connection = (
        http.client.HTTPConnection(url.hostname, url.port, timeout=GUARD, source_address=(address, 0))
        if context is None
        else http.client.HTTPSConnection(
            url.hostname, url.port, timeout=GUARD, source_address=(address, 0), context=context
        )
    )
    try:
        token = read_token(service.directory / "data/token")
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.process
def test_silent_operator_connections_shut_out_neither_guests_nor_other_operators(
    tmp_path: Path, context: ssl.SSLContext | None
) -> None:
    settings = SETTINGS + UNLIMITED_GUESTS + (TLS if context is not None else "")
    with run_serve(tmp_path, settings, within=LOW_LIMIT) as service:
        guest_url = ask(service, context, "/v1/vms/web-0")["guest_url"]
        with ExitStack() as stack:
            for number in range(3):
                open_silent(stack, service, context)
                assert [get(guest_url, EVENTS)[0] for _ in range(20)] == [200] * 20, f"flood {number}"
                assert ask(service, context, "/v1/me")["role"] == "admin"
            line = service.wait_for("refused")
            assert len(list(Path(f"/proc/{service.process.pid}/fd").iterdir())) < FILES - 128
        assert line["level"] == "warning"
        assert "over operator_connections_per_address (88 here)" in line["message"]
        assert "from 127.0.0.1" in line["message"]
