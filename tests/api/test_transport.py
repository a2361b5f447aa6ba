"""HTTP transport of the API client: foreign errors become its own."""

import os
import socket
from pathlib import Path

import msgspec
import pytest

from forewarn.api import transport as module
from forewarn.api.errors import (
    CertificateError,
    ConnectionClosed,
    InvalidResponse,
    InvalidUrl,
    NotFound,
    RequestRefused,
    ServiceUnreachable,
)
from forewarn.api.transport import MAX_POSITIONS, LastPositions, Transport


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


def test_positions_only_grow() -> None:
    positions = LastPositions()
    assert positions.header is None
    for position in ("east-5", "east-3", None, "nonsense", "east-x", "west-2"):
        positions.take(position)
    assert positions.header == "east-5, west-2"


def test_oldest_cell_is_forgotten() -> None:
    positions = LastPositions()
    for number in range(MAX_POSITIONS + 1):
        positions.take(f"cell{number}-1")
    positions.take("cell1-2")
    assert positions.header == "cell2-1, cell3-1, cell4-1, cell1-2"


def test_later_program_waits_for_the_changes_of_this_one(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "positions"
    positions = LastPositions(file)
    positions.take("east-5")
    assert not file.exists(), "reading changes nothing that others could miss"
    positions.take("west-7", is_change=True)
    assert LastPositions(file).header == "east-5, west-7"
    os.utime(file, (0, 0))
    assert LastPositions(file).header is None, "it is too old"


def test_position_that_is_never_reached_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = LastPositions()
    positions.take("east-5")
    monkeypatch.setattr(module, "LIFETIME", -1.0)
    assert positions.header is None


@pytest.mark.parametrize("content", [b"\xff", b"x" * 2000, b"nonsense"])
def test_damaged_file_of_positions_is_ignored(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "positions"
    file.write_bytes(content)
    positions = LastPositions(file)
    assert positions.header is None
    positions.take("east-1", is_change=True)
    assert LastPositions(file).header == "east-1"
