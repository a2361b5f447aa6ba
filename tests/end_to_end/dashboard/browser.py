"""A real browser on a real service: signs in, waits for what a user sees, and checks a page with axe."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.access import Role
from forewarn.testing.background import BackgroundContext
from tests.operator.running_api import TOKEN, RunningApi, run_api
from tests.support.chromium import Chromium, run_chromium

AXE = (Path(__file__).parent / "axe/axe.min.js").read_text()

LIVE = "document.getElementById('stream')?.dataset.state === 'live'"


class Browser(NamedTuple):
    """A browser, the service that it shows, and a client of its API."""

    tab: Chromium
    url: str
    api: ApiClient

    def show(self, path: str) -> None:
        """Show a page."""
        self.tab.open(f"{self.url}{path}")

    def sign_in(self, token: str = TOKEN) -> None:
        """Sign in with a token, and wait until the overview is live."""
        self.show("/ui/sign-in")
        self.tab.evaluate("document.getElementById('token').focus()")
        self.tab.type(token)
        self.tab.press("Enter")
        self.tab.wait_until(f"location.pathname === '/ui' && {LIVE}")

    def wait_for(self, text: str, *, selector: str = "main") -> None:
        """Wait until an element has a text."""
        self.tab.wait_until(f"{_text(selector)}.includes({json.dumps(text)})")

    def wait_until_gone(self, text: str, *, selector: str = "main") -> None:
        """Wait until an element has a text no longer."""
        self.tab.wait_until(f"!{_text(selector)}.includes({json.dumps(text)})")

    def text(self, selector: str = "main") -> str:
        """Return the text of an element."""
        found: str = self.tab.evaluate(_text(selector))
        return found

    def violations(self) -> list[tuple[str, str]]:
        """Return what axe finds on the page: rule and element."""
        self.tab.evaluate(AXE)
        found: list[Any] = self.tab.evaluate("axe.run().then(({violations}) => violations)")
        return [(each["id"], node["html"][:200]) for each in found for node in each["nodes"]]

    def foreign_requests(self) -> list[str]:
        """Return the requests that went elsewhere; Chromium draws its own controls with data URLs."""
        return [url for url in self.tab.requests if not url.startswith((self.url, "data:"))]


def _text(selector: str) -> str:
    return f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').replaceAll(/\\s+/g, ' ')"


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
def run_browser(url: str, directory: Path, token: str = TOKEN) -> Iterator[Browser]:
    """Run a browser for a service."""
    with run_chromium(directory) as tab:
        tab.emulate()
        yield Browser(tab, url, ApiClient(url, token))
