"""Retries are logged, with a limit on repetitions."""

import logging

import pytest

from forewarn.client import ScheduledEvents, Unreachable
from forewarn.client.retry import RetryLog, log_message
from tests.client.faulty_server import responds, run_faulty_server
from tests.client.scripted_flow import FakeMonotonic


def test_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        run_faulty_server(responds(503, b"busy"), responds()) as running,
        ScheduledEvents(running.url, sleep=lambda _: None) as se,
    ):
        se.get()
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("forewarn.client", "WARNING")
    assert "answered 503: busy; try again later" in record.getMessage()


def test_message_is_logged_as_information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forewarn.client")
    log_message("100% of x")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("INFO", "100% of x")]


def test_same_error_is_warned_about_every_ten_minutes_and_another_one_immediately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "forewarn.client")
    time = FakeMonotonic()
    log = RetryLog(time)
    for why, later in [("a", 0.0), ("a", 599.0), ("b", 0.0), ("b", 0.0), ("a", 0.0), ("a", 600.0)]:
        time.now += later
        log(Unreachable("http://x", why), 1.0)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "DEBUG", "WARNING", "DEBUG", "WARNING", "WARNING"]
