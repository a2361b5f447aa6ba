"""A service with the demonstration fleet, and a browser for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.dashboard.browser import Browser, Service, run_browser, run_dashboard


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in a thread."""
    with run_dashboard() as running:
        yield running


@pytest.fixture
def browser(service: Service, tmp_path: Path) -> Iterator[Browser]:
    """A browser that has not signed in. No page of a test may request anything of another host."""
    with run_browser(service.running.url, tmp_path) as opened:
        yield opened
        assert opened.foreign_requests() == []
