"""Journeys in a real browser: pages change live, tabs share one stream, and a lost connection is shown."""

import playwright.sync_api
import pytest
from playwright.sync_api import expect

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.errors import TooManyStreams
from forewarn.operator.state import StreamSlots
from tests.end_to_end.dashboard.browser import LOST, Browser, Service, open_browser, run_dashboard, schedule
from tests.end_to_end.dashboard.relay import run_relay
from tests.operator.running_api import TEN
from tests.support.processes import free_ports


def test_overview_follows_an_event_through_its_life(browser: Browser, service: Service) -> None:
    browser.sign_in()
    event = schedule(service, "web/web-0")
    browser.wait_for(event[:8])
    browser.wait_for("in 15 min")
    service.api.advance("5m")
    browser.wait_for("in 10 min")
    service.api.advance("10m")
    browser.wait_for("In impact now 1")
    service.api.advance()
    browser.wait_for("In impact now 0")


def test_tabs_share_one_stream(browser: Browser, service: Service) -> None:
    browser.sign_in()
    first = browser.tabs.open_tab()
    browser.show("/ui/fleet")
    assert service.running.fleet.journal.open == 1
    event = schedule(service, "web/web-0")
    expect(browser.page.locator("a.tile.scheduled")).to_have_count(1)
    browser.tabs.use(first)
    browser.wait_for(event[:8])


def test_page_is_stale_while_the_service_is_away_and_leads_to_the_sign_in_page_when_it_is_back(
    chromium: playwright.sync_api.Browser,
) -> None:
    """Sessions are in memory, so the restarted service asks to sign in; then the page that was open is shown."""
    port = free_ports(1)[0]
    with run_dashboard(port=port) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.show("/ui/holds")
        service.stop()
        expect(browser.page.locator("#stream")).to_contain_text("Stale since")
        browser.wait_for("Nothing is held")
        with run_dashboard(port=port):
            browser.wait_for_sign_in()
            browser.page.get_by_label("Token").fill("a-token-for-tests")
            browser.page.keyboard.press("Enter")
            browser.page.wait_for_url("**/ui/holds")
            browser.wait_until_live()
        browser.tabs.forgive(LOST, "status of 401")


def test_lost_connection_is_shown_and_the_stream_resumes(
    service: Service, chromium: playwright.sync_api.Browser
) -> None:
    """What happened in between is shown, in the same page and session."""
    with run_relay(service.running.port) as relay, open_browser(chromium, relay.url) as browser:
        browser.sign_in()
        browser.page.evaluate("window.isSamePage = true")
        relay.cut()
        expect(browser.page.locator("#stream")).to_contain_text("Stale since")
        event = schedule(service, "web/web-0")
        browser.wait_until_gone(event[:8])
        relay.repair()
        browser.wait_until_live()
        browser.wait_for(event[:8])
        assert browser.page.evaluate("window.isSamePage")
        browser.tabs.forgive(LOST)


def test_page_that_never_got_a_stream_is_stale_until_it_gets_one(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: StreamSlots) -> None:
        raise TooManyStreams(64)

    monkeypatch.setattr(StreamSlots, "acquire", refuse)
    browser.send_token()
    expect(browser.page.locator("#stream")).to_contain_text("Stale since")
    monkeypatch.undo()
    browser.wait_until_live()
    browser.tabs.forgive("status of 503")


def test_stream_of_a_limited_token_has_no_foreign_entry(browser: Browser, service: Service) -> None:
    browser.sign_in(service.token("team", Role.VIEWER, "shop"))
    hidden, own = schedule(service, "web/web-0"), schedule(service, "shop/FrontEnd_IN_0")
    browser.wait_for(own[:8])
    browser.wait_until_gone(hidden[:8])


def test_update_keeps_focus_and_open_details(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/vms/web/web-0")
    details = browser.page.locator("#document-2017-03-01")
    details.locator("summary").click()
    event = schedule(service, "web/web-0")
    browser.wait_for(event[:8])
    expect(details).to_have_attribute("open", "")
    expect(details.locator("summary")).to_be_focused()


def test_page_changes_while_a_dialog_is_open_and_its_form_stays(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/vms/web/web-0")
    browser.choose("Restart")
    browser.dialog.get_by_label("Reason").fill("half typed")
    event = schedule(service, "web/web-0")
    browser.wait_for(event[:8])
    expect(browser.dialog.get_by_label("Reason")).to_have_value("half typed")


def test_pages_of_a_scope_with_the_name_of_a_keyword_change(chromium: playwright.sync_api.Browser) -> None:
    fleet = '[[scopes]]\nname = "inventory"\nkind = "standalone"\nhosts = ["h"]\nvms = [{ name = "vm" }]\n'
    with run_dashboard(fleet) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.show("/ui/vms/inventory/vm")
        event = schedule(service, "inventory/vm")
        browser.wait_for(event[:8])


def test_error_of_an_update_is_shown_on_the_page(browser: Browser, service: Service) -> None:
    """The dialogs of the page have places for errors, too, which are hidden."""
    browser.sign_in()
    browser.show("/ui/vms/web/web-5")
    service.api.remove_vm("web/web-5")
    expect(browser.page.locator("#page-error")).to_contain_text("web-5")
    browser.tabs.forgive("status of 404")


def test_update_that_has_failed_is_requested_once_more(browser: Browser, service: Service) -> None:
    browser.page.clock.install()
    browser.sign_in()
    browser.show("/ui/holds")
    browser.page.route("**/ui/holds", lambda route: route.abort())
    with browser.page.expect_event("requestfailed"):
        service.api.hold(v1.CreateHold(reason="storm"))
    browser.page.unroute_all()
    browser.page.clock.run_for(16_000)
    browser.wait_for("storm")
    browser.tabs.forgive(LOST, "htmx:afterRequest", "htmx:sendError")


def test_poll_is_shown_though_the_journal_has_no_entry_of_it(browser: Browser, service: Service) -> None:
    browser.page.clock.install()
    browser.sign_in()
    browser.show("/ui/vms/web/web-0")
    browser.wait_for("not since the service started")
    service.running.fleet.replica.view("web").polled_at["web-0"] = TEN
    browser.page.clock.run_for(16_000)
    browser.wait_until_gone("not since the service started")
