"""Journey in a real browser: a user subscribes to the calendar, which a real parser reads, and revokes its address."""

from urllib.error import HTTPError
from urllib.request import urlopen

import icalendar
import pytest
from playwright.sync_api import expect

from forewarn.core.access import Role
from tests.end_to_end.dashboard.browser import Browser, Service, schedule
from tests.operator.sample_campaign import asked


def read(url: str) -> list[tuple[str, str]]:
    """Return summary and link of each entry of a feed."""
    with urlopen(url) as answer:
        calendar = icalendar.Calendar.from_ical(answer.read())
    return [(str(entry["summary"]), str(entry["url"])) for entry in calendar.walk("VEVENT")]


def test_user_subscribes_to_the_calendar_and_revokes_its_address(browser: Browser, service: Service) -> None:
    event = schedule(service, "web/web-0")
    hidden = schedule(service, "shop/FrontEnd_IN_0")
    service.api.start_campaign(asked("kernel", "web"))
    browser.sign_in(service.token("team", Role.VIEWER, "web"))
    browser.show("/ui/access")
    browser.wait_for("Your calendar has no address yet.")
    browser.choose("Create an address…")
    browser.confirm("Create")
    address = browser.dialog.get_by_label("Address of the calendar")
    expect(address).to_contain_text(".ics")
    expect(browser.dialog.get_by_role("button", name="Create", exact=True)).to_be_hidden()  # it is done
    for dark in (False, True):
        browser.tabs.emulate(dark=dark)
        assert browser.violations() == []
    url = address.text_content() or ""
    entries = read(url)
    assert ("Reboot of 1 VM in web", f"{browser.url}/ui/events/{event}") in entries
    assert [summary for summary, _ in entries].count("Reboot of 2 VMs in web (planned by kernel)") == 2
    assert hidden not in str(entries)
    browser.page.goto(dict(entries)["Reboot of 1 VM in web"])
    browser.wait_for("Scheduled")
    browser.show("/ui/access")
    browser.choose("Revoke its address…")
    browser.confirm("Revoke")
    browser.wait_for("Your calendar has no address yet.")
    with pytest.raises(HTTPError):
        read(url)
