"""Every page in both themes, on a screen and on a phone: axe finds nothing, nothing overflows; and shortcuts."""

import re
from collections.abc import Iterator
from typing import Any

import playwright.sync_api
import pytest
from playwright.sync_api import expect

from forewarn.api import v1
from forewarn.core.impact import Failed
from tests.end_to_end.dashboard.browser import Browser, Service, open_browser, run_dashboard, schedule
from tests.operator.dashboard.test_routes import PAGES as ROUTES
from tests.operator.dashboard.test_routes import PARAMETER
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
    "/ui/timeline",
    "/ui/timeline?group=vm&q=nothing",
    "/ui/campaigns",
    "/ui/campaigns/kernel",
    "/ui/campaigns/plan",
    "/ui/campaigns/plan?clone=kernel",
    "/ui/history",
    "/ui/holds",
    "/ui/access",
    "/ui/nothing",
    "/ui/sign-in",
)

CHECKED_ELSEWHERE = {
    "/ui/vms/{scope_id:str}/{name:str}/guest",  # test_guest
    "/ui/emulator",  # test_emulator, also the next two
    "/ui/emulator/runs/{run_id:str}",
    "/ui/emulator/reports/{report_id:str}",
}

NO_PAGES = {
    "/",  # leads to the overview
    "/ui/search",  # leads to what it has found
    "/ui/fleet/part",  # parts of the fleet page
    "/ui/fleet/states",
    "/ui/fleet/scopes/{scope_id:str}",
    "/ui/fleet/hosts/{host_name:str}",
    "/ui/vms/{scope_id:str}/{name:str}/guest/exchanges",  # a part of the guest page
    "/ui/history/export",  # files
    "/ui/documents/{scope_id:str}/{version:str}",
}
"""Paths whose answer is not a page."""


def test_every_page_is_checked() -> None:
    checked = [path.partition("?")[0] for path in PAGES]
    paths = {route.path for route in ROUTES.values() if route.method == "GET"} - CHECKED_ELSEWHERE - NO_PAGES
    patterns = {path: PARAMETER.sub("[^/]+", path) for path in paths}
    missing = [path for path, pattern in patterns.items() if not any(re.fullmatch(pattern, each) for each in checked)]
    assert missing == []


@pytest.fixture(scope="module")
def filled_service() -> Iterator[Service]:
    """A service that tests share: they only look."""
    with run_dashboard() as running:
        yield running


@pytest.fixture(scope="module")
def events(filled_service: Service) -> dict[str, str]:
    """Fill the fleet with maintenance of every kind."""
    service = filled_service
    service.running.platform.set_outcomes("web/web-5", Failed("the disk is full"))
    stuck, ended = schedule(service, "web/web-5"), schedule(service, "db-0/db-0")
    service.api.advance("1h")
    scheduled = schedule(service, "web/web-0")
    service.api.hold(v1.CreateHold(reason="a long reason", scope="shop"))
    service.api.start_campaign(asked("kernel", "batch"))
    return {"stuck": stuck, "ended": ended, "scheduled": scheduled}


@pytest.fixture(scope="module")
def cookies(filled_service: Service, chromium: playwright.sync_api.Browser) -> list[Any]:
    """The cookies of a user who has signed in."""
    with open_browser(chromium, filled_service.running.url) as opened:
        opened.sign_in()
        return [*opened.tabs.context.cookies()]


@pytest.fixture
def reader(filled_service: Service, cookies: list[Any], chromium: playwright.sync_api.Browser) -> Iterator[Browser]:
    """A browser that has signed in to the shared service."""
    with open_browser(chromium, filled_service.running.url) as opened:
        opened.tabs.context.add_cookies(cookies)
        yield opened


@pytest.mark.parametrize("path", PAGES)
def test_page_has_no_violation_in_both_themes_on_a_screen_and_a_phone(
    reader: Browser, events: dict[str, str], path: str
) -> None:
    reader.show(path.format_map(events))
    assert reader.page.url.endswith(path.format_map(events))
    check_page(reader)
    reader.tabs.forgive("status of 404")


def check_page(browser: Browser) -> None:
    """Check a page in both themes, on a screen and on a phone."""
    found = {}
    for dark in (False, True):
        for width in (1280, 390):
            browser.tabs.emulate(width=width, dark=dark)
            found[dark, width] = (browser.overflow(), browser.violations())
    assert found == dict.fromkeys(found, (0, []))


def test_sign_in_page_of_a_visitor_has_no_violation(browser: Browser) -> None:
    browser.show("/ui/sign-in")
    check_page(browser)
    browser.page.get_by_label("Token").fill("wrong")
    browser.page.keyboard.press("Enter")
    browser.wait_for("This token is wrong, expired or revoked.")
    check_page(browser)
    browser.tabs.forgive("status of 401")


@pytest.mark.parametrize("path", ["/ui", "/ui/fleet", "/ui/campaigns", "/ui/holds", "/ui/history?scope=web&actor=eve"])
def test_page_without_content_has_no_violation(browser: Browser, path: str) -> None:
    browser.sign_in()
    browser.show(path)
    check_page(browser)


DIALOGS = (
    "/ui/events/{scheduled}",
    "/ui/events/{stuck}",
    "/ui/vms/web/web-0",
    "/ui/campaigns/kernel",
    "/ui/holds",
    "/ui/access",
)


@pytest.mark.parametrize("path", DIALOGS)
def test_dialogs_have_no_violation_in_both_themes(reader: Browser, events: dict[str, str], path: str) -> None:
    reader.show(path.format_map(events))
    found = {}
    for button in reader.main.locator("button[data-dialog]").all():
        button.click()
        for dark in (False, True):
            reader.tabs.emulate(dark=dark)
            found[button.text_content(), dark] = reader.violations()
        reader.page.keyboard.press("Escape")
        expect(reader.dialog).to_have_count(0)
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


def test_nothing_moves_for_a_reader_who_prefers_that(browser: Browser) -> None:
    browser.sign_in()
    moving = "document.getAnimations().map(({ animationName }) => animationName)"
    assert browser.page.evaluate(moving) == ["beat"]
    browser.page.emulate_media(reduced_motion="reduce")
    assert browser.page.evaluate(moving) == []


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
