"""Journeys in a real browser: pages change live, tabs share one stream, and a lost connection is shown."""

from pathlib import Path

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.end_to_end.dashboard.browser import LIVE, Browser, Service, run_browser, run_dashboard
from tests.operator.sample_campaign import asked
from tests.support.processes import free_ports

PAGES = (
    "/ui",
    "/ui/fleet",
    "/ui/fleet?view=hosts",
    "/ui/vms/web/web-0",
    "/ui/campaigns",
    "/ui/campaigns/kernel",
    "/ui/history",
    "/ui/holds",
    "/ui/access",
    "/ui/nothing",
)


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


def test_fleet_changes_block_by_block_and_leads_to_a_vm(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/fleet")
    browser.tab.wait_until(LIVE)
    schedule(service, "web/web-0")
    browser.wait_for("web-0: scheduled")
    browser.tab.click('a[title^="web-0"]')
    browser.wait_for("Last polled")
    assert browser.tab.evaluate("location.pathname") == "/ui/vms/web/web-0"
    assert browser.tab.errors == []


def test_search_by_keyboard_finds_a_vm_and_maintenance_is_scheduled_there(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.tab.press("/")
    browser.tab.type("web-4")
    browser.tab.press("Enter")
    browser.wait_for("Does it see its events?")
    browser.tab.click("#open-schedule")
    browser.tab.click("#schedule button.primary")
    browser.wait_for("Starts in 15 min")
    assert [event.vms for event in service.api.events()] == [["web-4"]]


def test_shortcuts_are_listed(browser: Browser) -> None:
    browser.sign_in()
    browser.tab.press("?")
    browser.wait_for("Keyboard shortcuts", selector="dialog[open]")
    browser.tab.press("Escape")
    browser.tab.wait_until("document.querySelector('dialog[open]') === null")


def test_large_fleet_is_loaded_while_scrolling(tmp_path: Path) -> None:
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:04}"\nkind = "standalone"\nhosts = ["h{n % 97}"]\nvms = [{{ name = "vm-{n:04}" }}]\n'
        for n in range(5000)
    )
    with run_dashboard(fleet) as service, run_browser(service.running.url, tmp_path) as browser:
        browser.sign_in()
        browser.show("/ui/fleet")
        content = "document.getElementById('blocks').textContent"
        browser.tab.wait_until(f"{content}.includes('vm-0059')")
        assert not browser.tab.evaluate(f"{content}.includes('vm-0200')")
        browser.tab.wait_until(f"(scrollTo(0, document.body.scrollHeight), {content}.includes('vm-0200'))")
        browser.show("/ui/fleet?q=vm-4999")
        browser.wait_for("vm-4999", selector="#blocks")
        assert browser.tab.errors == []


def test_pages_have_no_violation_in_both_themes(browser: Browser, service: Service) -> None:
    schedule(service, "web/web-0")
    service.api.hold(v1.CreateHold(reason="a long reason", scope="shop"))
    service.api.start_campaign(asked("kernel", "batch"))
    browser.sign_in()
    found = {}
    for path in PAGES:
        browser.show(path)
        browser.tab.wait_until(LIVE)
        for dark in (False, True):
            for width in (1280, 390):
                browser.tab.emulate(width=width, dark=dark)
                overflow = browser.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
                found[path, dark, width] = (max(overflow, 0), browser.violations())
    assert found == dict.fromkeys(found, (0, []))
