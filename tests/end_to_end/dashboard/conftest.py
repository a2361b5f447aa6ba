"""Chromium, a service with the demonstration fleet, and a browser for it."""

from collections.abc import Iterator

import playwright.sync_api
import pytest

from tests.end_to_end.dashboard.browser import Browser, Service, open_browser, run_dashboard
from tests.support.chromium import run_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[playwright.sync_api.Browser]:
    """A Chromium that the tests of a module share; each has storage of its own."""
    with run_chromium() as running:
        yield running


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in a thread."""
    with run_dashboard() as running:
        yield running


@pytest.fixture
def browser(service: Service, chromium: playwright.sync_api.Browser) -> Iterator[Browser]:
    """A browser that has not signed in."""
    with open_browser(chromium, service.running.url) as opened:
        yield opened
