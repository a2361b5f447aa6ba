"""Journey in a real browser: the author of a handler keeps the guest page of an emulated VM open."""

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import playwright.sync_api
import pytest
from playwright.sync_api import expect

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from tests.cli.in_process import run_up
from tests.end_to_end.dashboard.browser import open_browser
from tests.support.program import Machine


def send(url: str, body: bytes | None = None) -> bytes:
    target = f"{url}/metadata/scheduledevents?api-version=2020-07-01"
    with urlopen(Request(target, body, {"Metadata": "true"})) as answer:
        content: bytes = answer.read()
    return content


def test_guest_page_shows_requests_documents_approvals_and_a_fault(
    chromium: playwright.sync_api.Browser, tmp_path: Path
) -> None:
    with run_up(Machine(tmp_path)) as service:
        url, token = service.ready["operator_url"], read_token(Path(service.ready["token_file"]))
        api, guest = ApiClient(url, token), service.guest_urls["web/web-0"]
        with open_browser(chromium, url) as browser:
            browser.sign_in(token)
            browser.show("/ui/vms/web/web-0")
            browser.main.get_by_role("link", name="What its handler sees, live").click()
            browser.wait_for("No request has arrived since this page was opened.")
            send(guest)
            browser.wait_for("no events")
            (event,) = api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=["web/web-0"], notice="1h")).created
            send(guest)
            send(guest)
            browser.wait_for("Reboot scheduled for web-0")
            browser.wait_for("×2")
            api.set_fault(v1.SetFault(kind=FaultKind.STATUS_410, vm="web/web-0", times=1))
            with pytest.raises(HTTPError):
                send(guest)
            browser.wait_for("410")
            send(guest, b'{"StartRequests":[{"EventId":"%s"}]}' % event.id.encode())
            browser.wait_for("200 Approved")
            shown = browser.page.locator("details.exchange")
            expect(shown).to_have_count(4)
            approved = shown.first
            approved.locator("summary").click()
            expect(approved).to_contain_text("POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1")
            expect(approved).to_contain_text(f'"EventId":"{event.id}"')
            expect(approved).to_contain_text("HTTP/1.1 200 OK")
            send(guest)
            expect(shown).to_have_count(5)
            expect(approved.locator("xpath=following::details[1]")).to_have_attribute("open", "")
            browser.page.get_by_label("Pause the list").check()
            with browser.page.expect_response("**/exchanges?*paused=true*") as asked:
                send(guest, b'{"StartRequests":[{"EventId":"%s"}]}' % event.id.encode())
            assert asked.value.status == 204
            expect(shown).to_have_count(5)
            for dark in (False, True):
                for width in (1280, 390):
                    browser.tabs.emulate(width=width, dark=dark)
                    assert (browser.overflow(), browser.violations()) == (0, [])
            browser.page.get_by_label("Pause the list").uncheck()
            expect(shown).to_have_count(6)
