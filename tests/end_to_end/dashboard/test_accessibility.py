"""Every page in both themes, on a screen and on a phone: axe finds nothing, nothing overflows; and shortcuts."""

import pytest
from playwright.sync_api import expect

from forewarn.api import v1
from forewarn.core.impact import Failed
from tests.end_to_end.dashboard.browser import Browser, Service, schedule
from tests.operator.sample_campaign import asked

PAGES = (
    "/ui",
    "/ui/fleet",
    "/ui/fleet?view=hosts",
    "/ui/fleet?q=nothing",
    "/ui/vms/web/web-0",
    "/ui/events/{scheduled}",
    "/ui/events/{stuck}",
    "/ui/events/{ended}",
    "/ui/campaigns",
    "/ui/campaigns/kernel",
    "/ui/history",
    "/ui/holds",
    "/ui/access",
    "/ui/nothing",
    "/ui/sign-in",
)


@pytest.fixture
def events(service: Service) -> dict[str, str]:
    """Fill the fleet with maintenance of every kind."""
    service.running.platform.set_outcomes("web/web-5", Failed("the disk is full"))
    stuck, ended = schedule(service, "web/web-5"), schedule(service, "db-0/db-0")
    service.api.advance("1h")
    scheduled = schedule(service, "web/web-0")
    service.api.hold(v1.CreateHold(reason="a long reason", scope="shop"))
    service.api.start_campaign(asked("kernel", "batch"))
    return {"stuck": stuck, "ended": ended, "scheduled": scheduled}


@pytest.mark.parametrize("path", PAGES)
def test_page_has_no_violation_in_both_themes_on_a_screen_and_a_phone(
    browser: Browser, events: dict[str, str], path: str
) -> None:
    browser.sign_in()
    browser.show(path.format_map(events))
    found = {}
    for dark in (False, True):
        for width in (1280, 390):
            browser.tabs.emulate(width=width, dark=dark)
            found[dark, width] = (browser.overflow(), browser.violations())
    assert found == dict.fromkeys(found, (0, []))
    browser.tabs.errors.clear()  # Chromium reports the page that does not exist


@pytest.mark.parametrize("path", ["/ui/events/{scheduled}", "/ui/events/{stuck}", "/ui/vms/web/web-0", "/ui/holds"])
def test_dialogs_have_no_violation_in_both_themes(browser: Browser, events: dict[str, str], path: str) -> None:
    browser.sign_in()
    browser.show(path.format_map(events))
    found = {}
    for button in browser.main.locator("button[data-dialog]").all():
        button.click()
        for dark in (False, True):
            browser.tabs.emulate(dark=dark)
            found[button.text_content(), dark] = browser.violations()
        browser.page.keyboard.press("Escape")
        expect(browser.dialog).to_have_count(0)
        expect(button).to_be_focused()
    assert found
    assert found == {button: [] for button in found}


def test_search_by_keyboard_finds_a_vm(browser: Browser) -> None:
    browser.sign_in()
    browser.page.keyboard.press("/")
    browser.page.keyboard.type("web-4")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_url("**/ui/vms/web/web-4")


def test_shortcuts_are_listed(browser: Browser) -> None:
    browser.sign_in()
    browser.page.keyboard.press("?")
    expect(browser.dialog).to_contain_text("Keyboard shortcuts")
    browser.page.keyboard.press("Escape")
    expect(browser.dialog).to_have_count(0)


def test_first_tab_stop_skips_to_the_content(browser: Browser) -> None:
    browser.sign_in()
    browser.page.keyboard.press("Tab")
    browser.page.keyboard.press("Enter")
    expect(browser.main).to_be_focused()


def test_times_are_in_the_zone_of_the_reader_with_utc_on_hover(browser: Browser, service: Service) -> None:
    """The browser of the tests is in Tokyo, nine hours ahead of UTC."""
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.show(f"/ui/events/{event}")
    time = browser.main.locator("time[data-kind=moment]").first
    expect(time).to_have_text("19:15:00")
    expect(time).to_have_attribute("title", "2026-03-02 10:15:00 UTC")
