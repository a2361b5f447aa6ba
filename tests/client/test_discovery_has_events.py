"""Which addresses discovery accepts: those that serve a document, now or as soon as the service is ready."""

import socket

import pytest

from forewarn.client.discovery import has_events
from tests.support.canned_server import run_canned_server

NOTHING_PLANNED = b'{"DocumentIncarnation":1,"Events":[]}'


def must_not_wait(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def test_address_with_a_document_has_events() -> None:
    with run_canned_server(lambda *_: (200, NOTHING_PLANNED)) as url:
        assert has_events(url, must_not_wait)


def test_service_with_only_old_versions_has_events() -> None:
    with run_canned_server(
        lambda path, _: (200, NOTHING_PLANNED) if path.endswith("2017-03-01") else (404, b"")
    ) as url:
        assert has_events(url, must_not_wait)


@pytest.mark.parametrize("status", [400, 403, 404])
def test_other_http_server_has_no_events(status: int) -> None:
    with run_canned_server(lambda *_: (status, b"{}")) as url:
        assert not has_events(url, must_not_wait)


def test_unreachable_address_has_no_events() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not has_events(f"http://127.0.0.1:{unused.getsockname()[1]}", must_not_wait)


def test_service_that_is_not_ready_is_polled_again() -> None:
    answers = iter([b"", b"", NOTHING_PLANNED])
    pauses: list[float] = []
    with run_canned_server(lambda *_: (200, next(answers))) as url:
        assert has_events(url, pauses.append)
    assert pauses == [5.0, 5.0]


def test_service_that_is_never_ready_has_no_events_after_two_minutes() -> None:
    pauses: list[float] = []
    with run_canned_server(lambda *_: (200, b"")) as url:
        assert not has_events(url, pauses.append)
    assert sum(pauses) == 120.0
