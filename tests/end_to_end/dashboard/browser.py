"""A real browser on a real service: signs in, waits for what a user sees, and checks a page with axe."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import playwright.sync_api
from playwright.sync_api import Locator, Page, expect

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.testing.background import BackgroundContext
from tests.operator.running_api import TOKEN, RunningApi, run_api
from tests.support.chromium import GUARD, Tabs, open_tabs

AXE = (Path(__file__).parent / "axe/axe.min.js").read_text()

LOST = "net::ERR_"
"""What Chromium itself writes into the console about a lost connection; `status of 404` is in that about an answer."""

expect.set_options(timeout=GUARD)


class Browser(NamedTuple):
    """The tabs of a user, and the service that they show."""

    tabs: Tabs
    url: str

    @property
    def page(self) -> Page:
        """The tab in use."""
        return self.tabs.page

    @property
    def main(self) -> Locator:
        """The content of the page."""
        return self.page.locator("main")

    @property
    def dialog(self) -> Locator:
        """The open dialog."""
        return self.page.locator("dialog[open]")

    def show(self, path: str) -> None:
        """Show a page, and wait until it is live, if it is one that updates itself."""
        self.page.goto(f"{self.url}{path}")
        if self.page.locator("#stream").count():
            self.wait_until_live()

    def wait_until_live(self) -> None:
        """Wait until the page is connected to the stream, and its scripts have started."""
        expect(self.page.locator("#stream")).to_have_attribute("data-state", "live")

    def sign_in(self, token: str = TOKEN) -> None:
        """Sign in with a token, and wait until the overview is live."""
        self.send_token(token)
        self.wait_until_live()

    def send_token(self, token: str = TOKEN) -> None:
        """Sign in with a token, and wait for the overview."""
        self.show("/ui/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/ui")

    def wait_for(self, text: str) -> None:
        """Wait until the page has a text."""
        expect(self.main).to_contain_text(text)

    def wait_until_gone(self, text: str) -> None:
        """Wait until the page has a text no longer."""
        expect(self.main).not_to_contain_text(text)

    def wait_for_sign_in(self) -> None:
        """Wait for the sign-in page."""
        self.page.wait_for_url(re.compile(r"/ui/sign-in"))

    def choose(self, action: str) -> None:
        """Open the dialog of an action."""
        self.main.get_by_role("button", name=action).click()

    def confirm(self, label: str) -> None:
        """Send the form of the open dialog."""
        self.dialog.get_by_role("button", name=label, exact=True).click()

    def violations(self) -> list[tuple[str, str]]:
        """Return what axe finds on the page: rule and element."""
        if self.page.evaluate("typeof axe === 'undefined'"):
            self.page.evaluate(AXE)
        found: list[Any] = self.page.evaluate(
            "axe.run({ resultTypes: ['violations'] }).then(({violations}) => violations)"
        )
        return [(each["id"], node["html"][:200]) for each in found for node in each["nodes"]]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        # Charts follow a new size of the window in the next frame.
        width: int = self.page.evaluate(
            """async () => {
                for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
                return Math.max(0, document.documentElement.scrollWidth - innerWidth);
            }"""
        )
        return width

    def foreign_requests(self) -> list[str]:
        """Return the requests that went elsewhere; Chromium draws its own controls with data URLs."""
        return [url for url in self.tabs.requests if not url.startswith((self.url, "data:"))]


class Service(NamedTuple):
    """A service in a thread of the test, on manual time. It can be stopped before the end of its context."""

    running: RunningApi
    api: ApiClient
    stop: Callable[[], None]

    def token(self, name: str, role: Role, *scopes: str) -> str:
        """Create a token and return its secret."""
        return self.api.create_token(v1.CreateToken(name=name, role=role, scopes=scopes)).secret


@contextmanager
def run_dashboard(fleet_file: str | None = None, *, port: int = 0) -> Iterator[Service]:
    """Run a service in a thread."""
    context = BackgroundContext(lambda: run_api(fleet_file=fleet_file, port=port), name="dashboard of a test")
    running = context.start()
    try:
        yield Service(running, ApiClient(running.url, TOKEN), context.stop)
    finally:
        context.stop()


@contextmanager
def open_browser(chromium: playwright.sync_api.Browser, url: str) -> Iterator[Browser]:
    """Open a browser that has not signed in. Nothing may be requested of another host, and no script may fail."""
    with open_tabs(chromium) as tabs:
        opened = Browser(tabs, url)
        yield opened
        assert opened.foreign_requests() == []
        assert tabs.errors == [], tabs.errors


def schedule(service: Service, vm: str, notice: str = "15m") -> str:
    """Schedule a reboot by the API, and return its id."""
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=[vm], notice=notice, unannounced=True)
    (event,) = service.api.schedule(ask).created
    return event.id
