"""Journeys in a real browser: an admin creates a token, uses it, and revokes it."""

import playwright.sync_api
from playwright.sync_api import Request, expect

from forewarn.core.access import Role
from tests.end_to_end.dashboard.browser import Browser, Service, open_browser


def test_secret_of_a_new_token_is_shown_and_signs_in_until_it_is_revoked(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/access")
    browser.choose("Create a token…")
    browser.dialog.get_by_label("Name (the journal shows it)").fill("ann")
    browser.confirm("Create")
    secret = browser.dialog.get_by_label("Secret of the token")
    expect(secret).to_contain_text("fw_")
    found = service.running.fleet.tokens.find(secret.text_content() or "")
    assert found is not None
    assert found.name == "ann"
    browser.confirm("Close")
    browser.wait_for("ann tk_")
    browser.main.get_by_role("button", name="Revoke ann").click()
    browser.confirm("Revoke")
    browser.wait_for("Revoked")


def test_admin_ends_the_session_of_another_browser(
    browser: Browser, service: Service, chromium: playwright.sync_api.Browser
) -> None:
    """The list of sessions changes though the journal has no entry of them."""
    browser.page.clock.install()
    browser.sign_in()
    browser.show("/ui/access")
    with open_browser(chromium, service.running.url) as other:
        other.sign_in(service.token("eve", Role.VIEWER))
        browser.page.clock.run_for(16_000)
        browser.main.get_by_role("button", name="End the session from 127.0.0.1").click()
        expect(browser.dialog).to_contain_text("The browser at 127.0.0.1 is signed out at once.")
        browser.confirm("End the session")
        browser.wait_for("Sessions 1")
        service.api.advance("1m")
        other.wait_for_sign_in()
        other.tabs.forgive("status of 401")


def test_what_a_user_does_prolongs_the_session_and_an_update_of_the_page_does_not(
    browser: Browser, service: Service
) -> None:
    browser.sign_in()
    browser.show("/ui/holds")
    sent: list[Request] = []
    browser.page.on("request", lambda request: sent.append(request))  # noqa: PLW0108 - a built-in is refused
    browser.choose("Hold maintenance…")
    browser.dialog.get_by_label("Reason").fill("freeze")
    with browser.page.expect_request(lambda each: (each.method, each.url) == ("GET", f"{browser.url}/ui/holds")):
        browser.confirm("Hold")
        browser.wait_for("freeze")
        service.api.advance("1m")
    own = [each for each in sent if each.url == f"{browser.url}/ui/holds"]
    assert {(each.method, "forewarn-background" in each.headers) for each in own} == {("POST", False), ("GET", True)}
