"""Journeys in a real browser: pages change live, tabs share one stream, and a lost connection is shown."""

from pathlib import Path

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.end_to_end.dashboard.browser import LIVE, Browser, Service, run_browser, run_dashboard
from tests.support.processes import free_ports


def schedule(service: Service, vm: str, notice: str = "15m") -> str:
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=[vm], notice=notice, unannounced=True)
    (event,) = service.api.schedule(ask).created
    return event.id


def test_overview_follows_an_event_through_its_life(browser: Browser, service: Service) -> None:
    browser.sign_in()
    event = schedule(service, "web/web-0")
    browser.wait_for(f"Reboot {event[:8]}")
    browser.wait_for("in 15 min")
    service.api.advance("5m")
    browser.wait_for("in 10 min")
    service.api.advance("10m")
    browser.wait_for("In impact now 1")
    service.api.advance()
    browser.wait_for("In impact now 0")
    assert browser.tab.errors == []


def test_tabs_share_one_stream(browser: Browser, service: Service) -> None:
    browser.sign_in()
    first = browser.tab.tab
    second = browser.tab.open_tab()
    browser.show("/ui")
    browser.tab.wait_until(LIVE)
    assert service.running.fleet.journal.open == 1
    event = schedule(service, "web/web-0")
    for tab in (second, first):
        browser.tab.use_tab(tab)
        browser.wait_for(f"Reboot {event[:8]}")


def test_lost_connection_is_shown_and_resumed(tmp_path: Path) -> None:
    """The page shows since when it is stale. When the service is back, its data and so the session are other ones."""
    port = free_ports(1)[0]
    with run_dashboard(port=port) as service, run_browser(service.running.url, tmp_path) as browser:
        browser.sign_in()
        service.stop()
        browser.wait_for("Stale since", selector="#stream")
        with run_dashboard(port=port):
            browser.tab.wait_until("location.pathname === '/ui/sign-in'")


def test_user_can_change_the_theme_and_the_width(browser: Browser, service: Service) -> None:
    """Nothing is wider than the window, and axe finds no violation, in both themes."""
    schedule(service, "web/web-0")
    service.api.hold(v1.CreateHold(reason="a long reason " * 20, scope="web"))
    browser.sign_in()
    found = {}
    for dark in (False, True):
        for width in (1280, 390):
            browser.tab.emulate(width=width, dark=dark)
            overflow = browser.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            found[dark, width] = (max(overflow, 0), browser.violations())
    assert found == dict.fromkeys(found, (0, []))
