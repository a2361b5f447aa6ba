"""The operator API with TLS: trust and renewal of certificates.

Processes: for SIGHUP, which reloads the certificate.
"""

import json
import signal
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, CertificateError, CertificateMismatch, ServiceUnreachable
from forewarn.api.local_service import read_token
from tests.cli.in_process import ProductionService, run, run_production
from tests.support.program import GUARD, Machine
from tests.support.serve_process import SETTINGS, ServeProcess, run_serve

TLS = f'{SETTINGS}\n[tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n'


class Authority:
    """A certificate authority."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.file = directory / "authority.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def certify(self, *names: str) -> None:
        """Write a certificate and its key to the files of the settings."""
        issued = self._ca.issue_cert(*names)
        issued.private_key_pem.write_to_path(str(self._directory / "key.pem"))
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self._directory / "cert.pem").write_bytes(chain)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.certify("127.0.0.1")
    return made


def client(service: ProductionService | ServeProcess, url: str | None = None, ca: Path | None = None) -> ApiClient:
    return ApiClient(url or service.operator_url, read_token(service.directory / "data/token"), ca=ca)


def shown_certificate(service: ProductionService | ServeProcess) -> bytes:
    """Return the certificate that the service presents."""
    host, _, port = service.operator_url.removeprefix("https://").partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=GUARD) as plain_connection,
        context.wrap_socket(plain_connection) as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def test_client_that_trusts_the_ca_is_served(tmp_path: Path, authority: Authority) -> None:
    with run_production(tmp_path, TLS) as service:
        assert service.operator_url.startswith("https://127.0.0.1:")
        assert len(list(client(service, ca=authority.file).vms())) == 3
        with pytest.raises(CertificateError):
            client(service).me()


def test_certificate_of_another_name_is_not_trusted_and_its_names_are_shown(
    tmp_path: Path, authority: Authority
) -> None:
    authority.certify("elsewhere.example", "10.0.0.7")
    with run_production(tmp_path, TLS) as service:
        with pytest.raises(CertificateMismatch) as refused:
            client(service, ca=authority.file).me()
        assert (refused.value.host, refused.value.names) == ("127.0.0.1", "elsewhere.example, 10.0.0.7")
        ended = run(
            Machine(tmp_path), "vm", "list", "--url", service.operator_url, "--token", "x", "--ca", str(authority.file)
        )
    port = service.operator_url.rpartition(":")[2]
    assert ended.code == 5
    assert ended.stderr == (
        f"forewarn: {service.operator_url} is not trusted: its certificate is not valid for 127.0.0.1, only for "
        "elsewhere.example, 10.0.0.7; use one of these names in the URL, "
        f"as in --url https://elsewhere.example:{port}, or give the service a certificate for 127.0.0.1\n"
    )


def test_plain_http_gets_no_response(tmp_path: Path, authority: Authority) -> None:
    with run_production(tmp_path, TLS) as service:
        with pytest.raises(ApiError):
            client(service, url=service.operator_url.replace("https:", "http:")).me()
        host, _, port = service.operator_url.removeprefix("https://").partition(":")
        with socket.create_connection((host, int(port)), timeout=GUARD) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not connection.recv(65_536).startswith(b"HTTP")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(tmp_path: Path, authority: Authority, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with run_production(tmp_path, TLS) as service:
        host, _, port = service.operator_url.removeprefix("https://").partition(":")
        with (
            socket.create_connection((host, int(port)), timeout=GUARD) as connection,
            pytest.raises((ssl.SSLError, ConnectionResetError)),
        ):
            context.wrap_socket(connection, server_hostname=host)


def test_local_command_line_trusts_the_pinned_certificate(
    machine: Machine, tmp_path: Path, authority: Authority
) -> None:
    """It knows the service's certificate itself, so the host name does not matter."""
    authority.certify("forewarn.example")
    with run_production(tmp_path, TLS):
        ended = run(machine, "vm", "list", "-o", "json")
        assert (ended.code, len(json.loads(ended.stdout))) == (0, 3), ended.stderr


def test_remote_command_line_needs_the_ca_option(machine: Machine, tmp_path: Path, authority: Authority) -> None:
    with run_production(tmp_path, TLS) as service:
        away = {"FOREWARN_URL": service.operator_url, "FOREWARN_TOKEN": read_token(tmp_path / "data/token")}
        assert run(machine, "vm", "list", **away).code == 5
        trusting = run(machine, "vm", "list", **away, FOREWARN_CA=str(authority.file))
        assert trusting.code == 0, trusting.stderr


@pytest.mark.process
def test_renewed_certificate_is_used_after_a_reload(tmp_path: Path, authority: Authority) -> None:
    with run_serve(tmp_path, TLS) as service:
        before = shown_certificate(service)
        authority.certify("127.0.0.1")
        assert shown_certificate(service) == before
        service.process.send_signal(signal.SIGHUP)
        service.wait_for("no setting has changed")
        assert shown_certificate(service) != before
        client(service, ca=authority.file).me()


@pytest.mark.process
def test_reload_with_a_broken_certificate_keeps_the_old_one(tmp_path: Path, authority: Authority) -> None:
    with run_serve(tmp_path, TLS) as service:
        before = shown_certificate(service)
        (tmp_path / "cert.pem").write_text("no certificate")
        service.process.send_signal(signal.SIGHUP)
        record = service.wait_for("reload failed")
        assert f"cannot serve with tls.certificate {tmp_path / 'cert.pem'}" in record["message"]
        assert shown_certificate(service) == before


@pytest.mark.parametrize("what", ["missing", "of another key"])
def test_unusable_certificate_is_named_at_start(
    machine: Machine, tmp_path: Path, authority: Authority, what: str
) -> None:
    if what == "missing":
        (tmp_path / "cert.pem").unlink()
    else:
        key = (tmp_path / "key.pem").read_bytes()
        authority.certify("127.0.0.1")
        (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "forewarn.toml").write_text(TLS)
    (tmp_path / "fleet.toml").write_text("scopes = []")
    ended = run(machine, "serve")
    record = json.loads(ended.stderr)
    expected = "No such file or directory" if what == "missing" else "they are not matching PEM files"
    assert ended.code == 3
    assert expected in record["message"]


def test_unreachable_service_is_unreachable_with_tls_too(tmp_path: Path, authority: Authority) -> None:
    with run_production(tmp_path, TLS) as service:
        pass
    with pytest.raises(ServiceUnreachable):
        client(service, ca=authority.file).me()
