"""HTTP transport of the API client: foreign errors become its own."""

import socket
from pathlib import Path

import msgspec
import pytest

from forewarn.api.errors import (
    CertificateError,
    ConnectionClosed,
    InvalidResponse,
    InvalidUrl,
    NotFound,
    RequestRefused,
    ServiceUnreachable,
)
from forewarn.api.transport import Transport


def transport(url: str) -> Transport:
    return Transport(url, "a-token", timeout=60)


@pytest.mark.parametrize("url", ["", "h:80", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://[::1"])
def test_url_that_is_none_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        transport(url)
    assert refused.value.url == url


def test_slash_at_the_end_of_the_url_is_dropped() -> None:
    assert transport("http://127.0.0.1:8170/").url == "http://127.0.0.1:8170"


def test_service_that_does_not_run_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServiceUnreachable) as refused:
        transport(f"http://127.0.0.1:{port}").request("GET", "/v1/vms", None, {})
    assert refused.value.url == f"http://127.0.0.1:{port}"
    assert not isinstance(refused.value, ConnectionClosed)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (409, RequestRefused), (503, RequestRefused)])
def test_error_response_is_a_refusal(status: int, kind: type[RequestRefused]) -> None:
    body = msgspec.json.encode({"error": {"code": "some-code", "message": "no", "details": {"vm": "x"}}})
    error = transport("http://h").refusal(status, body)
    assert (type(error), error.status, error.code, str(error), error.details) == (
        kind,
        status,
        "some-code",
        "no",
        {"vm": "x"},
    )


@pytest.mark.parametrize("body", [b"", b"nonsense", b"{}", b'{"error":"no"}'])
def test_error_response_of_something_else_is_no_response_of_this_api(body: bytes) -> None:
    with pytest.raises(InvalidResponse, match="status 500"):
        transport("http://h").refusal(500, body)


@pytest.mark.parametrize("content", [None, "nonsense"], ids=["missing", "no certificate"])
def test_certificate_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    for trust in ({"ca": file}, {"pinned": file}):
        with pytest.raises(CertificateError) as refused:
            Transport("https://h", "t", timeout=1, **trust)
        assert refused.value.url == str(file)
