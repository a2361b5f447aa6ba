"""Journeys in a real browser: signing in by link and by token, and how sessions end while a page is open."""

import re
from pathlib import Path

import playwright.sync_api
from playwright.sync_api import expect

from forewarn.core.access import Role
from forewarn.operator.sessions import IDLE_LIMIT
from tests.cli.in_process import run_up
from tests.end_to_end.dashboard.browser import Browser, Service, open_browser
from tests.support.program import Machine

REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
"""What Chromium itself writes into the console about an answer that the page handles."""


def test_link_of_forewarn_up_signs_in_once(chromium: playwright.sync_api.Browser, tmp_path: Path) -> None:
    """The code is in the fragment, so it is in no request for a page and no longer in the address afterwards."""
    machine = Machine(tmp_path)
    with run_up(machine) as service, open_browser(chromium, service.ready["operator_url"]) as browser:
        link = service.running.sign_in_url()
        code = re.search("#code=(.+)$", link)
        assert code is not None
        browser.page.goto(link)
        browser.page.wait_for_url(f"{browser.url}/ui")
        browser.wait_until_live()
        browser.wait_for("VMs15")
        assert not [url for url in browser.tabs.requests if code[1] in url.partition("#")[0]]
        browser.page.goto("about:blank")
        browser.page.goto(link)
        browser.wait_for("This link is no longer valid")
        assert browser.page.evaluate("location.hash") == ""
        browser.tabs.forgive(REFUSED)


def test_browser_at_the_root_is_led_to_the_sign_in_page_and_then_to_the_overview(browser: Browser) -> None:
    browser.show("/")
    expect(browser.page).to_have_title("Sign in · Forewarn")
    browser.sign_in()
    browser.show("/")
    expect(browser.page).to_have_title("Overview · Forewarn")


def test_wrong_token_is_refused_and_the_right_one_leads_to_the_wanted_page(browser: Browser) -> None:
    browser.show("/ui/history?scope=web")
    browser.page.get_by_label("Token").fill("wrong")
    browser.page.keyboard.press("Enter")
    browser.wait_for("This token is wrong, expired or revoked.")
    browser.page.get_by_label("Token").fill("a-token-for-tests")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_url("**/ui/history?scope=web")
    browser.wait_until_live()
    browser.tabs.forgive(REFUSED)


def test_user_signs_out(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.page.get_by_role("button", name="Sign out").click()
    browser.wait_for_sign_in()
    assert service.running.sessions.all() == ()


def test_page_of_a_revoked_token_leads_to_the_sign_in_page(browser: Browser, service: Service) -> None:
    browser.sign_in(service.token("eve", Role.VIEWER))
    (eve,) = (token for token in service.api.tokens().tokens if token.name == "eve")
    service.api.revoke_token(eve.id)
    browser.wait_for_sign_in()
    expect(browser.page.locator("header")).not_to_contain_text("eve")


def test_expired_session_leads_to_the_sign_in_page_and_back(browser: Browser, service: Service) -> None:
    """An open page does not prolong its session, though it updates itself."""
    browser.sign_in()
    browser.show("/ui/holds")
    (session,) = service.running.sessions.all()
    session.used_at -= IDLE_LIMIT
    service.api.advance("1m")
    browser.wait_for_sign_in()
    browser.page.get_by_label("Token").fill("a-token-for-tests")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_url("**/ui/holds")


def test_cookie_is_hidden_from_scripts(browser: Browser) -> None:
    browser.sign_in()
    assert browser.page.evaluate("document.cookie") == ""
    (cookie,) = browser.tabs.context.cookies(f"{browser.url}/ui")
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/ui")
