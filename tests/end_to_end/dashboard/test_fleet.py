"""Journeys in a real browser: the fleet changes block by block, and a large one is loaded while scrolling."""

import playwright.sync_api
from playwright.sync_api import expect

from tests.end_to_end.dashboard.browser import Browser, Service, open_browser, run_dashboard, schedule


def test_fleet_changes_block_by_block_and_leads_to_a_vm(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/fleet")
    schedule(service, "web/web-0")
    expect(browser.page.locator("a.tile.scheduled")).to_have_count(1)
    browser.page.get_by_role("link", name="web-0 scheduled").click()
    browser.wait_for("Last polled")
    assert browser.page.url == f"{browser.url}/ui/vms/web/web-0"


def test_fleet_of_5000_scopes_is_loaded_while_scrolling(chromium: playwright.sync_api.Browser) -> None:
    fleet = "".join(
        f'[[scopes]]\nname = "s{n:04}"\nkind = "standalone"\nhosts = ["h{n % 97}"]\nvms = [{{ name = "vm-{n:04}" }}]\n'
        for n in range(5000)
    )
    with run_dashboard(fleet) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.show("/ui/fleet")
        blocks = browser.page.locator("#blocks")
        expect(blocks).to_contain_text("vm-0059")
        expect(blocks).not_to_contain_text("vm-0200")
        while "vm-0200" not in (blocks.text_content() or ""):
            browser.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        browser.show("/ui/fleet?q=vm-4999")
        expect(blocks).to_contain_text("vm-4999")
