"""The operator listener: its port, its URL and its certificate."""

import asyncio
import errno
import resource
import socket
import ssl
import time
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from forewarn.compose import operators
from forewarn.compose.operators import (
    InvalidCertificate,
    OperatorLimits,
    bind_listener,
    create_tls_context,
    listener_url,
    operator_limits,
)
from forewarn.guest.limits import SPARE_FILES
from forewarn.guest.vm_listeners import ListenFailed
from forewarn.settings.schema import Settings, TlsSettings
from forewarn.settings.types import ListenAddress

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")],
)
def test_url_is_one_that_reaches_the_listener_from_this_machine(host: str, url: str) -> None:
    with bind_listener(ListenAddress(host, 0)) as listener:
        port = listener.getsockname()[1]
        assert listener_url(listener, None) == f"http://{url}:{port}"
        assert listener_url(listener, TLS) == f"https://{url}:{port}"
        socket.create_connection((url.strip("[]"), port), timeout=60).close()


def test_busy_port_is_refused_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenFailed) as refused, bind_listener(ListenAddress("127.0.0.1", port)):
            raise AssertionError("it is bound")
    error = refused.value
    assert (error.host, error.port, error.error.errno) == ("127.0.0.1", port, errno.EADDRINUSE)


def test_port_is_free_again_after_the_listener() -> None:
    with bind_listener(ListenAddress("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with bind_listener(ListenAddress("127.0.0.1", port)):
        pass


@pytest.fixture
def tls(tmp_path: Path) -> TlsSettings:
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return TlsSettings(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")


def test_certificate_is_served_with_tls_1_2_or_newer(tls: TlsSettings) -> None:
    context = create_tls_context(tls)
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_without_a_certificate_there_is_no_tls() -> None:
    assert create_tls_context(TlsSettings()) is None


@pytest.mark.parametrize("wrong", ["certificate", "key"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"], ids=["missing", "empty", "nonsense"])
def test_certificate_that_cannot_be_used_is_refused_with_both_files(
    tls: TlsSettings, wrong: str, content: bytes | None
) -> None:
    file: Path = getattr(tls, wrong)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(InvalidCertificate) as refused:
        create_tls_context(tls)
    assert refused.value.tls == tls
    assert str(tls.certificate) in str(refused.value)
    assert str(tls.key) in str(refused.value)


def test_key_of_another_certificate_is_refused(tls: TlsSettings) -> None:
    assert tls.key is not None
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(str(tls.key))
    with pytest.raises(InvalidCertificate, match="KEY_VALUES_MISMATCH"):
        create_tls_context(tls)


def test_key_with_a_password_is_refused_without_a_prompt(tls: TlsSettings) -> None:
    assert tls.key is not None
    key = serialization.load_pem_private_key(tls.key.read_bytes(), None)
    tls.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidCertificate, match="password"):
        create_tls_context(tls)


async def test_operator_api_is_created_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    def preload() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)  # another thread can start meanwhile
        running -= 1

    monkeypatch.setattr("forewarn.operator.app.preload", preload)
    await asyncio.gather(*(asyncio.to_thread(operators._prepare) for _ in range(4)))
    assert most == 1


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (100_000, OperatorLimits(1_024, 512)),
        (SPARE_FILES + 400, OperatorLimits(100, 75)),
        (SPARE_FILES, OperatorLimits(1, 1)),
        (resource.RLIM_INFINITY, OperatorLimits(1_024, 512)),
    ],
)
def test_operators_get_a_share_of_the_open_files(
    monkeypatch: pytest.MonkeyPatch, files: int, limits: OperatorLimits
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert operator_limits(Settings()) == limits


def test_operator_limits_are_settings() -> None:
    settings = Settings(operator_connections=40, operator_connections_per_address=7)
    assert operator_limits(settings) == OperatorLimits(40, 7)
