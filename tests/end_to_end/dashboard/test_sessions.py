"""Journeys in a real browser: signing in by link and by token, and how sessions end while a page is open."""

import re
from pathlib import Path

from forewarn.core.access import Role
from tests.cli.in_process import run_up
from tests.end_to_end.dashboard.browser import LIVE, Browser, Service, run_browser
from tests.support.program import Machine


def test_link_of_forewarn_up_signs_in_once(tmp_path: Path) -> None:
    """The code is in the fragment, so it is in no request for a page and no longer in the address afterwards."""
    machine = Machine(tmp_path)
    with run_up(machine) as service, run_browser(service.ready["operator_url"], tmp_path) as browser:
        link = service.running.sign_in_url()
        code = re.search("#code=(.+)$", link)
        assert code is not None
        browser.tab.open(link)
        browser.tab.wait_until(f"location.pathname === '/ui' && {LIVE}")
        assert "Scopes 4 VMs 15" in browser.text()
        assert not [url for url in browser.tab.requests if code[1] in url.partition("#")[0]]
        browser.tab.open("about:blank")
        browser.tab.open(link)
        browser.wait_for("This link is no longer valid")
        assert browser.tab.evaluate("location.hash") == ""


def test_wrong_token_is_refused_and_the_right_one_leads_to_the_wanted_page(browser: Browser) -> None:
    browser.show("/ui?")
    browser.wait_for("Sign in")
    browser.tab.evaluate("document.getElementById('token').focus()")
    browser.tab.type("wrong")
    browser.tab.press("Enter")
    browser.wait_for("This token is wrong, expired or revoked.")
    browser.sign_in()
    assert "Needs a person 0" in browser.text()


def test_user_signs_out(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.tab.click("#sign-out")
    browser.wait_for("Sign in")
    assert service.running.sessions.all() == ()


def test_page_of_a_revoked_token_leads_to_the_sign_in_page(browser: Browser, service: Service) -> None:
    browser.sign_in(service.token("eve", Role.VIEWER))
    (eve,) = (token for token in service.api.tokens().tokens if token.name == "eve")
    service.api.revoke_token(eve.id)
    browser.tab.wait_until("location.pathname === '/ui/sign-in'")
    assert "admin" not in browser.text("header")


def test_ended_session_leads_to_the_sign_in_page_at_the_next_change(browser: Browser, service: Service) -> None:
    browser.sign_in()
    (session,) = service.running.sessions.all()
    service.running.sessions.end(session.id)
    service.api.advance("1m")
    browser.tab.wait_until("location.pathname === '/ui/sign-in'")


def test_cookie_is_hidden_from_scripts(browser: Browser) -> None:
    browser.sign_in()
    assert browser.tab.evaluate("document.cookie") == ""
    (cookie,) = browser.tab.call("Network.getCookies")["cookies"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/ui")
