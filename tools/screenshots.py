"""Take the screenshots of the dashboard for README and docs, from the demonstration fleet.

`make screenshots` writes them into docs/pictures. Needs Chromium.
"""

import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from playwright.sync_api import expect

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from tests.cli.in_process import UpService, run_up
from tests.end_to_end.dashboard.browser import Browser, open_browser
from tests.operator.sample_campaign import asked
from tests.support.chromium import run_chromium
from tests.support.program import Machine

PICTURES = Path(__file__).parents[1] / "docs/pictures"

WIDTH = 1280
HOUR = timedelta(hours=1)
PAGES = {
    "overview": ("/ui", "light", 940),
    "fleet": ("/ui/fleet", "dark", 660),
    "event": ("/ui/events/{event}", "light", 940),
}
"""Path, theme and height of each page, by the name of its picture."""

CAMPAIGN = """\
name = "kernel-6.1"
type = "Reboot"
duration = "90s"

[selection]
all = true
exclude_scopes = ["batch"]

[policy]
gap = "1h"  # let the caches warm up
scopes_at_once = 2
"""
"""The campaign that the editor shows."""

SILENT = ("web/web-4", "db-0/db-0")
"""VMs that do not poll."""


def prepare(service: UpService, api: ApiClient) -> str:
    """Fill the fleet with maintenance of every kind, and return the event that is shown."""
    for vm, url in service.guest_urls.items():
        if vm not in SILENT:
            send(url)
    api.start_campaign(asked("kernel", "batch"))
    api.schedule(v1.ScheduleEvents(type=EventType.REDEPLOY, vms=["shop/BackEnd_IN_0"], notice="3h"))
    api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["web/web-1"], notice="2h"))
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=["web/web-0"], notice="15m", reason="new kernel")
    shown = api.schedule(ask).created[0].id
    api.fail(v1.Fail(vms=["web/web-5"], reason="no power"))
    api.hold(v1.CreateHold(scope="shop", reason="quarter end: ask the finance team"))
    return shown


def send(url: str, body: bytes | None = None) -> None:
    """Send a request as the handler of a VM does."""
    target = f"{url}/metadata/scheduledevents?api-version=2020-07-01"
    with suppress(HTTPError):
        urlopen(Request(target, body, {"Metadata": "true"})).close()


def take_guest_page(browser: Browser, service: UpService, api: ApiClient, event: str, file: Path) -> None:
    """Take the screenshot of the guest page, with polls, a fault and an approval."""
    url = service.guest_urls["web/web-0"]
    browser.tabs.emulate(width=WIDTH, height=760)
    browser.show("/ui/vms/web/web-0/guest")
    for _ in range(42):
        send(url)
    api.set_fault(v1.SetFault(kind=FaultKind.STATUS_410, vm="web/web-0", times=1))
    send(url)
    for _ in range(3):
        send(url)
    send(url, b'{"StartRequests":[{"EventId":"%s"}]}' % event.encode())
    approved = browser.page.locator("details.exchange", has_text="200 Approved")
    approved.locator("summary").click()
    browser.page.screenshot(path=file, animations="disabled")


def take_timeline(browser: Browser, api: ApiClient, file: Path) -> None:
    """Take the screenshot of the timeline, some hours later: a campaign in its window, and events of every outcome."""
    now = api.clock().now.replace(minute=0, second=0, microsecond=0)
    window = v1.CampaignWindow(start=f"{now - HOUR:%H:%M}", end=f"{now + 12 * HOUR:%H:%M}")
    blackout = v1.CampaignBlackout(start=now + 7 * HOUR, end=now + 8 * HOUR, why="trade fair")
    api.release(v1.ReleaseHold(scope="shop"))
    policy = {"gap": "3h", "windows": [window], "blackouts": [blackout]}
    api.start_campaign(asked("firmware", "shop", "web", **policy))
    canceled = api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0/db-0"], notice="2h")).created[0].id
    api.advance("70m")
    api.cancel(canceled, v1.CancelEvent(reason="not needed"))
    api.advance("20m")
    api.schedule(v1.ScheduleEvents(type=EventType.REDEPLOY, vms=["db-0/db-0"], notice="7h", duration="40m"))
    api.hold(v1.CreateHold(scope="batch", reason="quarter end"))
    api.advance("2h40m")
    browser.tabs.emulate(width=WIDTH, height=720)
    browser.show("/ui/timeline?hours=18")
    browser.page.screenshot(path=file, animations="disabled")


def take_editor(browser: Browser, file: Path) -> None:
    """Take the screenshot of the campaign editor with a plan."""
    browser.tabs.emulate(width=WIDTH, height=1000)
    browser.show("/ui/campaigns/plan")
    browser.page.locator("#toml").fill(CAMPAIGN)
    expect(browser.page.locator("#plan")).to_have_attribute("data-state", "current")
    browser.page.locator("#toml").press("Control+Home")
    browser.page.locator("#toml").blur()
    browser.page.screenshot(path=file, animations="disabled")


def take_emulator(browser: Browser, service: UpService, api: ApiClient, file: Path) -> None:
    """Take the screenshot of the emulator page: two faults, one with hits, and a scenario that has passed."""
    api.clear_faults()
    run = api.play_scenario(v1.PlayScenario(name="eviction-30s"))
    *_, _ = api.follow_scenario_run(run.id)
    api.set_fault(v1.SetFault(kind=FaultKind.STATUS_410, vm="web/web-0", times=5))
    api.set_fault(v1.SetFault(kind=FaultKind.SLOW, vm="batch/batch_0", amount="2s"))
    for _ in range(2):
        send(service.guest_urls["web/web-0"])
    take(browser, "/ui/emulator", theme="light", height=960, file=file)


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
            file = directory / "dashboard-guest.png"
            take_guest_page(browser, service, ApiClient(url, token), event, file)
            print(f"wrote {file}")
            file = directory / "dashboard-editor.png"
            take_editor(browser, file)
            print(f"wrote {file}")
            file = directory / "dashboard-timeline.png"
            take_timeline(browser, ApiClient(url, token), file)
            print(f"wrote {file}")
            file = directory / "dashboard-campaign.png"
            take(browser, "/ui/campaigns/firmware", theme="dark", height=860, file=file)
            print(f"wrote {file}")
            file = directory / "dashboard-emulator.png"
            take_emulator(browser, service, ApiClient(url, token), file)
            print(f"wrote {file}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
