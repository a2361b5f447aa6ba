"""Event page: life of an event, its actions, what viewers do not get, and the documents per api-version."""

import re

import pytest

from forewarn.core.access import Role
from forewarn.core.impact import Failed
from forewarn.core.policy import HostState
from forewarn.wire.document import encode_document
from forewarn.wire.preview import scope_after_poll
from forewarn.wire.protocol import VERSIONS
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import TEN, RunningApi, event_detail, run_api, schedule_event

HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}"


async def failed_event(service: RunningApi) -> str:
    """Return an event whose work on web-0 has failed."""
    service.platform.set_outcomes("web/web-0", Failed("the disk is full"))
    event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
    await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
    return event


async def test_scheduled_event_shows_what_it_waits_for_and_how_it_looks_to_vms() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        before = await service.stored_state()
        text = await browser.text(f"/ui/events/{event.lower()}")
        assert f"Reboot of web {event[:8]} Scheduled Starts in 2026-03-02 10:15 UTC" in text
        assert "Not before the end of its notice, 2026-03-02 10:15 UTC" in text
        assert "Approval it starts earlier if" in text
        assert f"scheduled web {event[:8]} web-0" in text
        shown = re.findall(r"api-version (\d{4}-\d\d-\d\d) \{", text)
        assert shown == list(VERSIONS[::-1])
        assert text.count(f'"EventId": "{event}"') == len(VERSIONS)
        assert await service.stored_state() == before


async def test_document_is_shown_exactly_and_enables_nothing() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web"))
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", description=HOSTILE, unannounced=True)
        before = await service.stored_state()
        for version in VERSIONS:
            answer = await browser.get(f"/ui/documents/web/{version}")
            document = scope_after_poll(service.fleet.replica.scope("web"), now=service.fleet.clock.now())
            assert (answer.status, answer.body) == (200, encode_document(document, version))
            assert answer.headers["content-type"] == "application/json"
        assert (await browser.get("/ui/documents/web/2099-01-01")).status == 404
        assert (await browser.get("/ui/documents/shop/2020-07-01")).status == 403
        assert await service.stored_state() == before


async def test_blockers_lead_to_what_blocks() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        first = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", f"/v1/events/{first}/approve", {"vm": "web-0"})
        second = await schedule_event(service, "Reboot", "web/web-1", notice="15m", unannounced=True)
        await service.request("POST", "/v1/holds", {"reason": "x", "scope": "web"})
        page = (await browser.get(f"/ui/events/{second}")).body.decode().partition('id="blockers"')[2]
        assert f'href="/ui/events/{first}"' in page.partition("</section>")[0]
        assert 'href="/ui/holds"' in page.partition("</section>")[0]


async def test_silent_host_that_blocks_is_linked() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        service.fleet.scopes.host_states = {"hv-0": HostState(silent_since=TEN)}
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        page = (await browser.get(f"/ui/events/{event}")).body.decode().partition('id="blockers"')[2]
        assert "Host silent" in page.partition("</section>")[0]
        assert 'href="/ui/fleet?view=hosts&amp;host=hv-0"' in page.partition("</section>")[0]


@pytest.mark.parametrize("action", ["approve", "cancel", "retry", "resolve"])
async def test_viewer_gets_no_action_and_is_refused(action: str) -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER))
        event = await failed_event(service)
        page = (await browser.get(f"/ui/events/{event}")).body.decode()
        assert "data-dialog" not in page.replace('data-dialog="help"', "")
        answer = await browser.post(f"/ui/events/{event}/{action}", {"vm": "web-0", "done": "true", "reason": "x"})
        assert (answer.status, answer.headers["content-type"]) == (403, "text/plain; charset=utf-8")
        assert (await event_detail(service, event)).event is not None


async def test_event_of_another_scope_is_not_found_and_not_changed() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.OPERATOR, "shop"))
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        for id_ in (event, "no-such-event"):
            assert (await browser.get(f"/ui/events/{id_}")).status == 404
            for action in ("approve", "cancel", "retry", "resolve"):
                form = {"vm": "web-0", "reason": "x"} | ({"done": "true"} if action == "resolve" else {})
                form = form if action != "cancel" else {"reason": "x"}
                assert (await browser.post(f"/ui/events/{id_}/{action}", form)).status == 404
        assert (await event_detail(service, event)).outcome is None


async def test_approval_starts_the_event_and_the_journal_names_the_user() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("ann", Role.OPERATOR))
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        answer = await browser.post(f"/ui/events/{event}/approve", {"vm": "web-0", "reason": "now", "ignored": ""})
        assert (answer.status, answer.headers["hx-trigger"]) == (204, "changed")
        detail = await event_detail(service, event)
        assert detail.event is not None
        assert detail.event.status == "Started"
        assert ("approved", "ann", "in the name of web-0: now") in [
            (row.action.value, row.actor, row.reason) for row in detail.journal
        ]


async def test_repeated_form_is_one_change() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        key = {"Idempotency_Key": "k1"}
        answers = [await browser.post(f"/ui/events/{event}/cancel", {"reason": "x"}, **key) for _ in range(2)]
        assert [answer.status for answer in answers] == [204, 204]
        again = await browser.post(f"/ui/events/{event}/cancel", {"reason": "x"})
        assert again.status in (404, 409)
        assert await browser.text(f"/ui/events/{event}") is not None


async def test_canceled_event_is_shown_with_its_outcome_and_without_actions() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await browser.post(f"/ui/events/{event}/cancel", {"reason": "not needed"})
        page = (await browser.get(f"/ui/events/{event}")).body.decode()
        assert f"Reboot of web {event[:8]} Canceled Ended" in page_text(page)
        assert "not needed" in page_text(page)
        assert "<form hx-post" not in page


async def test_ended_event_shows_what_its_journal_has_of_the_work() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        service.platform.set_outcomes("web/web-0", Failed("the disk is full"))
        event = await schedule_event(
            service, "Reboot", "web/web-0", notice="15m", unannounced=True, reason="new kernel"
        )
        path = f"/ui/events/{event}"
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        assert (await browser.post(f"{path}/retry")).status == 204
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        text = await browser.text(path)
        assert "Source Platform Created 2026-03-02 10:00 UTC by admin Reason new kernel VMs 1" in text
        rows = text.partition("Attempt Note ")[2].partition(" Journal")[0]
        assert rows == "web-0 Done 2"


async def test_event_that_has_failed_is_marked_as_failed() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await failed_event(service)
        await browser.post(f"/ui/events/{event}/resolve", {"done": "false", "reason": "scrapped"})
        page = (await browser.get(f"/ui/events/{event}")).body.decode()
        assert '<span class="state failed">Failed</span></h1>' in page


async def test_failed_work_is_retried() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await failed_event(service)
        assert "the work on web-0 has failed: the disk is full" in await browser.text(f"/ui/events/{event}")
        assert (await browser.post(f"/ui/events/{event}/retry", {"vm": "web-0"})).status == 204
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        assert "Completed" in await browser.text(f"/ui/events/{event}")


async def test_failed_work_is_resolved_with_a_reason_only() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await failed_event(service)
        refused = await browser.post(f"/ui/events/{event}/resolve", {"done": "true", "vm": ""})
        assert (refused.status, b"reason" in refused.body) == (400, True)
        assert (await browser.post(f"/ui/events/{event}/resolve", {"done": "true", "reason": "by hand"})).status == 204
        assert "by hand" in await browser.text(f"/ui/events/{event}")
        assert (await event_detail(service, event)).event is None


async def test_hostile_text_is_escaped() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(
            service, "Reboot", "web/web-0", description=HOSTILE, reason=HOSTILE, notice="1h", unannounced=True
        )
        page = (await browser.get(f"/ui/events/{event}")).body.decode()
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
