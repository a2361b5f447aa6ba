"""Take the screenshots of the dashboard for README and docs, from the demonstration fleet.

`make screenshots` writes them into docs/pictures. Needs Chromium.
"""

import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from tests.cli.in_process import UpService, run_up
from tests.end_to_end.dashboard.browser import Browser, open_browser
from tests.operator.sample_campaign import asked
from tests.support.chromium import run_chromium
from tests.support.program import Machine

PICTURES = Path(__file__).parents[1] / "docs/pictures"

WIDTH = 1280
PAGES = {
    "overview": ("/ui", "light", 940),
    "fleet": ("/ui/fleet", "dark", 660),
    "event": ("/ui/events/{event}", "light", 940),
}
"""Path, theme and height of each page, by the name of its picture."""

SILENT = ("web/web-4", "db-0/db-0")
"""VMs that do not poll."""


def prepare(service: UpService, api: ApiClient) -> str:
    """Fill the fleet with maintenance of every kind, and return the event that is shown."""
    for vm, url in service.guest_urls.items():
        if vm not in SILENT:
            poll = f"{url}/metadata/scheduledevents?api-version=2020-07-01"
            urlopen(Request(poll, headers={"Metadata": "true"})).close()
    api.start_campaign(asked("kernel", "batch"))
    api.schedule(v1.ScheduleEvents(type=EventType.REDEPLOY, vms=["shop/BackEnd_IN_0"], notice="3h"))
    api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["web/web-1"], notice="2h"))
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=["web/web-0"], notice="15m", reason="new kernel")
    shown = api.schedule(ask).created[0].id
    api.fail(v1.Fail(vms=["web/web-5"], reason="no power"))
    api.hold(v1.CreateHold(scope="shop", reason="quarter end: ask the finance team"))
    return shown


def take(browser: Browser, path: str, *, theme: str, height: int, file: Path) -> None:
    """Take the screenshot of a page."""
    browser.tabs.emulate(width=WIDTH, height=height, dark=theme == "dark")
    browser.show(path)
    browser.page.screenshot(path=file, animations="disabled")


def main(directory: Path = PICTURES) -> None:
    """Take all screenshots."""
    with tempfile.TemporaryDirectory() as home, run_up(Machine(Path(home))) as service:
        url, token = service.ready["operator_url"], read_token(Path(service.ready["token_file"]))
        event = prepare(service, ApiClient(url, token))
        with run_chromium() as chromium, open_browser(chromium, url) as browser:
            browser.sign_in(token)
            for name, (path, theme, height) in PAGES.items():
                file = directory / f"dashboard-{name}.png"
                take(browser, path.format(event=event), theme=theme, height=height, file=file)
                print(f"wrote {file}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
