"""Which address counts as right: one that has a document of events, at once or as soon as its service is ready."""

import socket

import pytest

from forewarn.client.discovery import has_events
from tests.support.canned_server import run_canned_server

NOTHING_PLANNED = b'{"DocumentIncarnation":1,"Events":[]}'


def nobody_waits(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def test_document_makes_an_address_right() -> None:
    with run_canned_server(lambda *_: (200, NOTHING_PLANNED)) as url:
        assert has_events(url, nobody_waits)


def test_service_that_knows_old_versions_only_is_right() -> None:
    with run_canned_server(
        lambda path, _: (200, NOTHING_PLANNED) if path.endswith("2017-03-01") else (404, b"")
    ) as url:
        assert has_events(url, nobody_waits)


@pytest.mark.parametrize("status", [400, 403, 404])
def test_anything_else_that_serves_http_is_wrong(status: int) -> None:
    with run_canned_server(lambda *_: (status, b"{}")) as url:
        assert not has_events(url, nobody_waits)


def test_address_where_nobody_is_is_wrong() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not has_events(f"http://127.0.0.1:{unused.getsockname()[1]}", nobody_waits)


def test_service_that_is_not_ready_is_asked_again() -> None:
    answers = iter([b"", b"", NOTHING_PLANNED])
    pauses: list[float] = []
    with run_canned_server(lambda *_: (200, next(answers))) as url:
        assert has_events(url, pauses.append)
    assert pauses == [5.0, 5.0]


def test_service_that_never_gets_ready_is_wrong_after_two_minutes() -> None:
    pauses: list[float] = []
    with run_canned_server(lambda *_: (200, b"")) as url:
        assert not has_events(url, pauses.append)
    assert sum(pauses) == 120.0
