"""Journeys in a real browser: a campaign is paused, resumed and aborted; its page changes live."""

from tests.end_to_end.dashboard.browser import Browser, Service
from tests.operator.sample_campaign import asked


def test_campaign_is_paused_resumed_and_aborted(browser: Browser, service: Service) -> None:
    service.api.start_campaign(asked("kernel", "batch"))
    browser.sign_in()
    browser.show("/ui/campaigns")
    browser.main.get_by_role("link", name="kernel").click()
    browser.wait_until_live()
    browser.choose("Pause")
    browser.confirm("Pause")
    browser.wait_for("Paused")
    browser.choose("Resume")
    browser.confirm("Resume")
    browser.wait_for("Running")
    browser.choose("Abort")
    browser.dialog.get_by_label("Reason").fill("wrong kernel")
    browser.confirm("Abort")
    browser.wait_for("Aborted")
    browser.wait_for("wrong kernel")
