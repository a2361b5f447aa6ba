"""Journeys in a real browser: an event through its life, its actions by mouse and keyboard, and permissions."""

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.impact import Failed
from tests.end_to_end.dashboard.browser import LIVE, Browser, Service


def schedule(service: Service, vm: str, notice: str = "15m") -> str:
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=[vm], notice=notice, unannounced=True)
    (event,) = service.api.schedule(ask).created
    return event.id


def show_event(browser: Browser, event: str) -> None:
    browser.show(f"/ui/events/{event}")
    browser.tab.wait_until(LIVE)


def test_event_is_approved_and_followed_to_its_end(browser: Browser, service: Service) -> None:
    browser.sign_in()
    event = schedule(service, "web/web-0")
    browser.wait_for(event[:8])
    browser.tab.click(f"#e-{event}")
    browser.wait_for("Starts in 15 min")
    browser.tab.click("#open-approve")
    browser.wait_for("the VM restarts, and memory is lost", selector="dialog[open]")
    browser.tab.click("#approve button.primary")
    browser.wait_for("In impact")
    service.api.advance()
    browser.wait_for("Completed")
    assert browser.tab.errors == []


def test_event_is_canceled_with_the_keyboard_alone(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    show_event(browser, event)
    while browser.tab.evaluate("document.activeElement.id") != "open-cancel":
        browser.tab.press("Tab")
    browser.tab.press("Enter")
    browser.wait_for("The event will not happen.", selector="dialog[open]")
    while browser.tab.evaluate("document.activeElement.id") != "cancel-reason":
        browser.tab.press("Tab")
    browser.tab.type("not needed")
    browser.tab.press("Enter")
    browser.wait_for("Canceled")
    browser.wait_for("not needed")


def test_failed_work_is_retried(browser: Browser, service: Service) -> None:
    service.running.platform.set_outcomes("web/web-0", Failed("the disk is full"))
    event = schedule(service, "web/web-0")
    service.api.advance("1h")
    browser.sign_in()
    show_event(browser, event)
    browser.wait_for("the disk is full")
    browser.tab.click("#open-retry")
    browser.tab.click("#retry button.primary")
    browser.wait_for("The platform carries out the work.")
    service.api.advance()
    browser.wait_for("Completed")


def test_refused_change_is_explained_in_its_dialog(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    show_event(browser, event)
    browser.tab.click("#open-cancel")
    service.api.cancel(event, v1.CancelEvent())
    browser.tab.click("#cancel button.danger")
    browser.wait_for("there is no open event", selector="#cancel .form-error")
    browser.tab.press("Escape")
    browser.wait_for("Canceled")


def test_viewer_sees_no_action_and_limited_operator_only_own_events(browser: Browser, service: Service) -> None:
    hidden, own = schedule(service, "shop/FrontEnd_IN_0"), schedule(service, "web/web-0")
    browser.sign_in(service.token("eve", Role.VIEWER))
    show_event(browser, own)
    assert browser.tab.evaluate("document.querySelectorAll('main button').length") == 0
    browser.tab.click("#sign-out")
    browser.wait_for("Sign in")
    browser.sign_in(service.token("team", Role.OPERATOR, "web"))
    assert (own[:8] in browser.text(), hidden[:8] in browser.text()) == (True, False)
    browser.show(f"/ui/events/{hidden}")
    browser.wait_for("Not found")


def test_event_page_has_no_violation_in_both_themes(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    show_event(browser, event)
    found = {}
    for dark in (False, True):
        for width in (1280, 390):
            browser.tab.emulate(width=width, dark=dark)
            overflow = browser.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            found[dark, width] = (max(overflow, 0), browser.violations())
    browser.tab.click("#open-approve")
    found[True, 0] = (0, browser.violations())
    assert found == dict.fromkeys(found, (0, []))


def test_page_of_an_earlier_session_says_that_it_must_be_loaded_again(browser: Browser, service: Service) -> None:
    """Another tab has signed in again, so the cookie belongs to another session than the page."""
    event = schedule(service, "web/web-0")
    browser.sign_in()
    show_event(browser, event)
    browser.tab.click("#open-cancel")
    first = browser.tab.tab
    browser.tab.open_tab()
    browser.sign_in()
    browser.tab.use_tab(first)
    browser.tab.click("#cancel button.danger")
    browser.wait_for("This page is older than your session. Reload it.", selector="#cancel .form-error")
    assert service.api.event(event).event is not None


def test_change_without_a_connection_is_explained_and_can_be_repeated(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    show_event(browser, event)
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.tab.click("#open-cancel")
    browser.tab.call("Network.emulateNetworkConditions", offline=True, **offline)
    browser.tab.click("#cancel button.danger")
    browser.wait_for("The service cannot be reached.", selector="#cancel .form-error")
    browser.tab.call("Network.emulateNetworkConditions", offline=False, **offline)
    browser.tab.click("#cancel button.danger")
    browser.wait_for("Canceled")
