"""A real Chromium without a window, controlled by Playwright: Debian's program, in a profile of its own.

Playwright keeps an event loop in the thread of the test. So a module whose tests use it has no test that is a
coroutine.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

GUARD = 60_000
"""Milliseconds after which a wait in the browser fails."""

OPTIONS = (
    "--no-sandbox",  # the sandbox does not work for root, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
)


@contextmanager
def run_chromium() -> Iterator[Browser]:
    """Run Chromium; skip the test if it is not installed, but not in CI."""
    program = shutil.which("chromium")
    if program is None:
        report = pytest.fail if os.environ.get("CI") else pytest.skip
        report("needs chromium; type: sudo apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Tabs:
    """The tabs of one user, who shares nothing with others; `page` is the tab in use. Records requests and errors."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.requests: list[str] = []
        """The URLs that pages, their frames and their workers have requested."""
        self.errors: list[str] = []
        """Errors in the console, uncaught exceptions and failed requests."""
        context.set_default_timeout(GUARD)
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("console", self._record_message)
        context.on("requestfailed", self._record_failure)
        self.page = context.new_page()

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _record_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":
            self.errors.append(f"{request.url}: {request.failure}")

    def forgive(self, *expected: str) -> None:
        """Forget errors that the test itself has caused: those that contain one of these texts."""
        self.errors = [error for error in self.errors if not any(text in error for text in expected)]

    def open_tab(self) -> Page:
        """Open another tab and use it; return the one that was used before."""
        before = self.page
        self.page = self.context.new_page()
        return before

    def use(self, page: Page) -> None:
        """Use another open tab, which becomes visible."""
        self.page = page
        page.bring_to_front()

    def emulate(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window, and the theme that the user prefers."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_viewport_size({"width": width, "height": height})


@contextmanager
def open_tabs(browser: Browser) -> Iterator[Tabs]:
    """Open a tab with empty storage, in a zone that differs from UTC."""
    context = browser.new_context(locale="en-GB", timezone_id="Asia/Tokyo", viewport={"width": 1280, "height": 900})
    try:
        yield Tabs(context)
    finally:
        context.close()
