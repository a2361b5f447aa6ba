"""Journeys in a real browser: an event through its life, its actions by mouse and keyboard, and permissions."""

from urllib.parse import quote

from playwright.sync_api import Locator, expect

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.impact import Failed
from tests.end_to_end.dashboard.browser import LOST, Browser, Service, schedule
from tests.operator.running_api import TOKEN
from tests.operator.sample_campaign import asked


def test_reboot_is_scheduled_in_the_browser_and_followed_live_to_its_end(browser: Browser, service: Service) -> None:
    """Every state is shown without a reload: the user only looks while time passes."""
    browser.sign_in()
    browser.show("/ui/vms/web/web-4")
    browser.choose("Schedule maintenance")
    browser.dialog.get_by_label("Reason").fill("new kernel")
    browser.confirm("Schedule")
    browser.page.wait_for_url("**/ui/events/*")
    browser.wait_until_live()
    browser.page.evaluate("window.isSamePage = true")
    browser.wait_for("Scheduled")
    browser.wait_for("Starts in 15 min")
    browser.wait_for("new kernel")
    service.api.advance("10m")
    browser.wait_for("Starts in 5 min")
    service.api.advance("5m")
    browser.wait_for("In impact")
    browser.wait_for("The platform carries out the work.")
    service.api.advance()
    browser.wait_for("Completed")
    browser.wait_for("Ended")
    assert browser.page.evaluate("window.isSamePage")
    assert [event.vms for event in service.api.events()] == []


def test_event_is_approved_and_starts_before_its_time(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.page.locator(f"#e-{event}").click()
    browser.wait_until_live()
    browser.choose("Approve")
    expect(browser.dialog).to_contain_text("the VM restarts, and memory is lost")
    browser.confirm("Approve")
    browser.wait_for("In impact")


def test_event_is_scheduled_and_canceled_with_the_keyboard_alone(browser: Browser) -> None:
    """From the sign-in page to the end of the event."""
    keyboard = browser.page.keyboard

    def reach(id_: str) -> None:
        while browser.page.evaluate("document.activeElement.id") != id_:
            keyboard.press("Tab")

    browser.show("/ui/sign-in")
    keyboard.type(TOKEN)
    keyboard.press("Enter")
    browser.page.wait_for_url("**/ui")
    browser.wait_until_live()
    keyboard.press("/")
    keyboard.type("web-4")
    keyboard.press("Enter")
    browser.page.wait_for_url("**/ui/vms/web/web-4")
    browser.wait_until_live()
    reach("open-schedule")
    keyboard.press("Enter")
    expect(browser.dialog).to_contain_text("It starts after its notice, or when it is approved.")
    reach("schedule-reason")
    keyboard.type("new kernel")
    keyboard.press("Enter")
    browser.page.wait_for_url("**/ui/events/*")
    browser.wait_until_live()
    reach("open-cancel")
    keyboard.press("Enter")
    expect(browser.dialog).to_contain_text("The event will not happen.")
    reach("cancel-reason")
    keyboard.type("not needed")
    keyboard.press("Enter")
    browser.wait_for("Canceled")
    browser.wait_for("not needed")


def test_event_is_scheduled_and_approved_on_a_phone(browser: Browser) -> None:
    """Every step is within the window: nothing has to be scrolled sideways."""

    def tap(target: Locator) -> None:
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box is not None
        assert (box["x"] >= 0, box["x"] + box["width"] <= 390, browser.overflow()) == (True, True, 0)
        target.click()

    browser.tabs.emulate(width=390, height=844)
    browser.sign_in()
    tap(browser.page.get_by_role("navigation").get_by_role("link", name="Fleet"))
    browser.wait_until_live()
    tap(browser.main.get_by_role("link", name="web-4"))
    browser.wait_until_live()
    tap(browser.main.get_by_role("button", name="Schedule maintenance"))
    tap(browser.dialog.get_by_role("button", name="Schedule", exact=True))
    browser.page.wait_for_url("**/ui/events/*")
    browser.wait_until_live()
    tap(browser.main.get_by_role("button", name="Approve"))
    tap(browser.dialog.get_by_role("button", name="Approve", exact=True))
    browser.wait_for("In impact")
    assert browser.overflow() == 0


def test_failed_impact_is_retried(browser: Browser, service: Service) -> None:
    service.running.platform.set_outcomes("web/web-0", Failed("the disk is full"))
    event = schedule(service, "web/web-0")
    service.api.advance("1h")
    browser.sign_in()
    browser.wait_for("Needs a person 1")
    browser.page.locator(f"#e-{event}").click()
    browser.wait_until_live()
    browser.wait_for("the disk is full")
    browser.choose("Retry")
    expect(browser.dialog).to_contain_text("The platform carries out the work again")
    browser.confirm("Retry")
    browser.wait_for("The platform carries out the work.")
    service.api.advance()
    browser.wait_for("Completed")


def test_refused_change_is_explained_in_its_dialog(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.show(f"/ui/events/{event}")
    browser.choose("Cancel event")
    service.api.cancel(event, v1.CancelEvent())
    browser.confirm("Cancel the event")
    expect(browser.dialog.get_by_role("alert")).to_contain_text("there is no open event")
    browser.page.keyboard.press("Escape")
    browser.wait_for("Canceled")
    browser.tabs.forgive("status of 404")


def test_viewer_sees_no_action_and_limited_operator_only_own_events(browser: Browser, service: Service) -> None:
    hidden, own = schedule(service, "shop/FrontEnd_IN_0"), schedule(service, "web/web-0")
    browser.sign_in(service.token("eve", Role.VIEWER))
    for path in (f"/ui/events/{own}", "/ui/vms/web/web-0", "/ui/holds", "/ui/campaigns"):
        browser.show(path)
        expect(browser.main.get_by_role("button")).to_have_count(0)
    browser.page.get_by_role("button", name="Sign out").click()
    browser.wait_for_sign_in()
    browser.sign_in(service.token("team", Role.OPERATOR, "web"))
    browser.wait_for(own[:8])
    browser.wait_until_gone(hidden[:8])
    browser.show("/ui/fleet")
    browser.wait_for("web-0")
    browser.wait_until_gone("FrontEnd")
    browser.show(f"/ui/events/{hidden}")
    browser.wait_for("Not found")
    browser.show(f"/ui/events/{own}")
    browser.choose("Cancel event")
    browser.confirm("Cancel the event")
    browser.wait_for("Canceled")
    browser.tabs.forgive("status of 404")


def test_hostile_texts_are_shown_as_texts(browser: Browser, service: Service) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'{{7*7}}"
    ask = v1.ScheduleEvents(
        type=EventType.REBOOT, vms=["web/web-0"], notice="15m", description=hostile, reason=hostile, unannounced=True
    )
    (event,) = service.api.schedule(ask).created
    service.api.hold(v1.CreateHold(scope="shop", reason=hostile))
    campaign = service.api.start_campaign(asked("kernel", "batch"))
    service.api.pause_campaign(campaign.id, v1.PauseCampaign(reason=hostile))
    browser.page.on("dialog", lambda dialog: browser.tabs.errors.append(dialog.message))
    browser.sign_in()
    for path in (
        "/ui",
        f"/ui/events/{event.id}",
        "/ui/vms/web/web-0",
        "/ui/campaigns",
        "/ui/campaigns/kernel",
        "/ui/history",
        "/ui/holds",
        f"/ui/fleet?state={quote(hostile[:28])}",
    ):
        browser.show(path)
        browser.wait_for("<img src=x onerror=alert(1)>")
        expect(browser.main.locator("img, script:not([type='application/json']), b")).to_have_count(0)
    browser.show(f"/ui/fleet?q={quote(hostile)}")
    expect(browser.main.get_by_label("Search")).to_have_value(hostile)
    browser.tabs.forgive("status of 400")


def test_page_of_an_earlier_session_says_that_it_must_be_loaded_again(browser: Browser, service: Service) -> None:
    """Another tab has signed in again, so the cookie belongs to another session than the page."""
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.show(f"/ui/events/{event}")
    browser.choose("Cancel event")
    first = browser.tabs.open_tab()
    browser.sign_in()
    browser.tabs.use(first)
    browser.confirm("Cancel the event")
    expect(browser.dialog.get_by_role("alert")).to_have_text("This page is older than your session. Reload it.")
    assert service.api.event(event).event is not None
    browser.tabs.forgive("status of 403")


def test_change_without_a_connection_is_explained_and_can_be_repeated(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    browser.sign_in()
    browser.show(f"/ui/events/{event}")
    browser.choose("Cancel event")
    browser.tabs.context.set_offline(True)
    browser.confirm("Cancel the event")
    expect(browser.dialog.get_by_role("alert")).to_contain_text("The service cannot be reached.")
    browser.tabs.context.set_offline(False)
    browser.confirm("Cancel the event")
    browser.wait_for("Canceled")
    browser.tabs.forgive(LOST, "htmx:sendError", "htmx:afterRequest")
