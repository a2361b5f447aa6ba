"""Journeys in a real browser: the fleet changes block by block, and a large one is loaded while scrolling."""

import re
from statistics import quantiles

import playwright.sync_api
import pytest
from playwright.sync_api import Route, expect

from forewarn.api import v1
from tests.end_to_end.dashboard.browser import LOST, Browser, Service, open_browser, run_dashboard, schedule

MAX_TILES = 8 * 480
"""What a document may have of 100,000 tiles. Parts of 24 blocks with 20 VMs are higher than a window: at most five are
within seven windows, and up to three have just been loaded after a jump."""

SCROLL = """([pixels, frames]) => new Promise((resolve) => {
  const times = [];
  const lengths = () => times.slice(1).map((end, index) => end - times[index]);
  requestAnimationFrame(function next(time) {
    times.push(time);
    scrollBy(0, pixels);
    times.length <= frames ? requestAnimationFrame(next) : resolve(lengths());
  });
})"""
"""Scroll by so many pixels in each of so many frames, and return the milliseconds of each frame."""


def fleet_of(scopes: int, vms_each: int) -> str:
    """Return a fleet file with the scopes s0000 and so on, the first with the VMs vm-0000-0 and so on."""
    return "".join(
        f'[[scopes]]\nname = "s{n:04}"\nkind = "availability-set"\nhosts = ["h{n % 97}"]\n'
        f'vms = [{{ name = "vm-{n:04}-{{n}}", count = {vms_each} }}]\n'
        for n in range(scopes)
    )


def scroll_down_to(browser: Browser, block: str) -> int:
    """Scroll to the end until a block is loaded, and return the largest number of tiles in the document."""
    tiles = 0
    while browser.page.locator(f"#block-{block} .tile").count() == 0:
        browser.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        tiles = max(tiles, browser.page.locator(".tile").count())
    return tiles


def requested_again(browser: Browser) -> list[str]:
    """Return the last block of each part that was requested again, in the order of the requests."""
    return [found[1] for url in browser.tabs.requests if (found := re.search(r"/ui/fleet/part\?.*until=(\w+)", url))]


def height_of_first_part(browser: Browser) -> float:
    """Return the height of the first part of the page."""
    height: float = browser.page.evaluate("document.querySelector('.part').getBoundingClientRect().height")
    return height


def print_frames(browser: Browser, place: str, pixels: int) -> None:
    """Scroll, and print how long frames took; no test depends on it."""
    times: list[float] = browser.page.evaluate(SCROLL, [pixels, 200])
    cuts = quantiles(times, n=20)
    print(f"{place}: median {cuts[9]:.0f} ms, p95 {cuts[18]:.0f} ms of {len(times)} frames")  # noqa: T201 - figures for the reader of a long run


def test_fleet_changes_block_by_block_and_leads_to_a_vm(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/fleet")
    schedule(service, "web/web-0")
    expect(browser.page.locator("a.tile.scheduled")).to_have_count(1)
    assert [url for url in browser.tabs.requests if "/ui/fleet/part" in url] == []
    browser.page.get_by_role("link", name="web-0 scheduled").click()
    browser.wait_for("Last polled")
    assert browser.page.url == f"{browser.url}/ui/vms/web/web-0"


def test_vm_that_gets_the_state_of_the_filter_appears(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/fleet?state=scheduled")
    browser.wait_for("No VM matches.")
    event = schedule(service, "web/web-0")
    expect(browser.page.locator(".tile")).to_have_text(["web-0 scheduled"])
    browser.wait_until_gone("No VM matches.")
    service.api.cancel(event, v1.CancelEvent())
    browser.wait_for("No VM matches.")


def test_updates_go_on_after_a_block_was_removed_during_its_update(browser: Browser, service: Service) -> None:
    browser.sign_in()
    browser.show("/ui/fleet")
    held: list[Route] = []
    browser.page.route("**/ui/fleet/scopes/web?*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright sets an attribute of it
    with browser.page.expect_request("**/ui/fleet/scopes/web?*"):
        schedule(service, "web/web-0")
    browser.page.evaluate("document.getElementById('block-web').remove()")
    with browser.page.expect_event("requestfinished"):
        held[0].continue_()
    schedule(service, "shop/FrontEnd_IN_0")
    expect(browser.page.locator("#block-shop .tile.scheduled")).to_have_count(1)


def test_import_into_an_empty_fleet_is_shown_in_parts(chromium: playwright.sync_api.Browser) -> None:
    with run_dashboard("scopes = []") as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.tabs.emulate(height=300)
        browser.show("/ui/fleet")
        browser.wait_for("The fleet is empty.")
        list(service.api.import_fleet(fleet_of(130, 1).encode()))
        browser.wait_until_gone("The fleet is empty.")
        scroll_down_to(browser, "s0129")
        expect(browser.page.locator(".block")).to_have_count(130)


def test_fleet_of_5000_scopes_is_loaded_while_scrolling(chromium: playwright.sync_api.Browser) -> None:
    with run_dashboard(fleet_of(5000, 1)) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.show("/ui/fleet")
        blocks = browser.page.locator("#blocks")
        expect(blocks).to_contain_text("vm-0059")
        expect(blocks).not_to_contain_text("vm-0200")
        scroll_down_to(browser, "s0200")
        scroll_down_to(browser, "s0360")
        browser.page.evaluate("document.getElementById('block-s0360').scrollIntoView()")
        service.api.add_vm(v1.AddVm(name="s0360-new"))
        expect(blocks).to_contain_text("s0360-new")
        renewed = requested_again(browser)
        assert (len(renewed) > 0, "s0059" in renewed) == (True, False)
        browser.show("/ui/fleet?q=vm-4999")
        expect(blocks).to_contain_text("vm-4999")


def test_parts_far_from_the_window_lose_their_tiles_and_come_back_current(
    chromium: playwright.sync_api.Browser,
) -> None:
    with run_dashboard(fleet_of(300, 1)) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.tabs.emulate(height=300)
        browser.show("/ui/fleet")
        first, last, focused = (browser.page.locator(f"#block-{name}") for name in ("s0000", "s0299", "s0130"))
        height = height_of_first_part(browser)
        scroll_down_to(browser, "s0130")
        focused.locator(".tile").evaluate("(tile) => tile.focus({ preventScroll: true })")
        scroll_down_to(browser, "s0299")
        for block in (first, browser.page.locator("#block-s0100")):
            expect(block.locator(".tile")).to_have_count(0)
        expect(first.get_by_role("heading")).to_have_text("s0000 availability-set · 1 VM")
        assert height_of_first_part(browser) == height
        expect(focused.locator(".tile")).to_be_focused()
        assert requested_again(browser) == []

        schedule(service, "s0000/vm-0000-0")
        browser.page.evaluate("scrollTo(0, 0)")
        expect(first.locator(".tile.scheduled")).to_have_count(1)
        expect(last.locator(".tile")).to_have_count(0)
        assert height_of_first_part(browser) == height
        browser.page.evaluate(SCROLL, [10, 30])
        browser.page.evaluate(SCROLL, [-10, 30])
        assert requested_again(browser) == ["s0059"]


def test_tiles_whose_request_has_failed_are_requested_once_more(chromium: playwright.sync_api.Browser) -> None:
    with run_dashboard(fleet_of(180, 1)) as service, open_browser(chromium, service.running.url) as browser:
        browser.page.clock.install()
        browser.sign_in()
        browser.tabs.emulate(height=300)
        browser.show("/ui/fleet")
        scroll_down_to(browser, "s0179")
        tiles = browser.page.locator("#block-s0000 .tile")
        expect(tiles).to_have_count(0)
        browser.page.route("**/ui/fleet/part?*until=s0059", lambda route: route.abort())
        with browser.page.expect_event("requestfailed"):
            browser.page.evaluate("scrollTo(0, 0)")
        browser.page.unroute_all()
        browser.page.clock.run_for(16_000)
        expect(tiles).to_have_count(1)
        browser.tabs.forgive(LOST, "htmx:afterRequest", "htmx:sendError")


def test_further_part_whose_request_has_failed_is_requested_once_more(chromium: playwright.sync_api.Browser) -> None:
    with run_dashboard(fleet_of(80, 1)) as service, open_browser(chromium, service.running.url) as browser:
        browser.page.clock.install()
        browser.sign_in()
        browser.tabs.emulate(height=300)
        browser.show("/ui/fleet")
        browser.page.route("**/ui/fleet/part?*after=s0059", lambda route: route.abort())
        with browser.page.expect_event("requestfailed"):
            browser.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        browser.page.unroute_all()
        browser.page.clock.run_for(16_000)
        expect(browser.page.locator("#block-s0079 .tile")).to_have_count(1)
        browser.tabs.forgive(LOST, "htmx:afterRequest", "htmx:sendError")


@pytest.mark.long
def test_document_stays_small_in_a_fleet_of_100000_vms(chromium: playwright.sync_api.Browser) -> None:
    with run_dashboard(fleet_of(5000, 20)) as service, open_browser(chromium, service.running.url) as browser:
        browser.sign_in()
        browser.show("/ui/fleet")
        first = browser.page.locator("#block-s0000")
        print_frames(browser, "at the beginning", 40)
        most = scroll_down_to(browser, "s1500")
        print_frames(browser, "after 30,000 tiles", 40)
        most = max(most, scroll_down_to(browser, "s4999"))
        assert most <= MAX_TILES
        assert requested_again(browser) == []

        schedule(service, "s0000/vm-0000-7")
        expect(first.locator(".tile")).to_have_count(0)
        for block in ("s4000", "s3000", "s2000", "s1000"):
            browser.page.evaluate(f"document.getElementById('block-{block}').scrollIntoView()")
            expect(browser.page.locator(f"#block-{block} .tile")).to_have_count(20)
            print_frames(browser, f"back at {block}", -40)
            assert browser.page.locator(".tile").count() <= MAX_TILES
        browser.page.evaluate("scrollTo(0, 0)")
        expect(first.locator(".tile")).to_have_count(20)
        expect(first.locator(".tile.scheduled")).to_have_text("vm-0000-7 scheduled")
        assert browser.page.locator(".tile").count() <= MAX_TILES
        again = requested_again(browser)
        assert (len(again), "s0023" in again) == (len(set(again)), True)

        for path, tiles in (("q=vm-4999", 20), ("q=vm-4999-7", 1), ("state=scheduled", 1), ("scope=s4321", 20)):
            browser.show(f"/ui/fleet?{path}")
            expect(browser.page.locator(".tile")).to_have_count(tiles)
        browser.page.get_by_role("link", name="vm-4321-19").click()
        browser.wait_for("Last polled")
