"""VM page: facts, checks, documents and operations; and the search that leads to VMs and events."""

import pytest

from forewarn.core.access import Role
from forewarn.core.policy import PRODUCTION
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import TEN, RunningApi, run_api, schedule_event

VM = "/ui/vms/web/web-0"


def events(service: RunningApi) -> list[tuple[str, str, tuple[str, ...]]]:
    found = (event for view in service.fleet.replica.views_with_events() for event in (view.scope or ()).events)  # type: ignore[union-attr]  # views with events have scopes
    return [(event.type.value, event.source.value, event.vms) for event in found]


async def test_page_has_facts_checks_documents_and_journal() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        text = await browser.text(VM)
        for part in (
            "web-0 Scheduled",
            "Last polled not since the service started",
            "Addresses 10.20.1.4 in default",
            "OK Is it known? Yes: web/web-0",
            "api-version 2020-07-01 {",
            "scheduled web",
        ):
            assert part in text
        service.fleet.replica.view("web").polled_at["web-0"] = TEN
        assert "Last polled 2026-03-02 10:00 UTC" in await browser.text(VM)


async def test_ended_events_are_listed_with_their_outcome() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        done = await schedule_event(service, "Freeze", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        canceled = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", f"/v1/events/{canceled}/cancel", {"reason": "not needed"})
        other = await schedule_event(service, "Reboot", "web/web-1", notice="15m", unannounced=True)
        await service.request("POST", f"/v1/events/{other}/cancel", {})
        past = (await browser.text(VM)).partition("Past events")[2].partition("What it sees now")[0]
        assert (
            past.split()
            == (
                f"2 Outcome Event Ended By Reason Canceled Reboot {canceled[:8]} 2026-03-02 11:00 UTC admin not needed "
                f"Completed Freeze {done[:8]} 2026-03-02 10:15 UTC platform"
            ).split()
        )


async def test_event_starts_at_once_only_if_the_form_says_so() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        form = {"type": "Reboot", "unannounced": "true", "now": "true"}
        answer = await browser.post(f"{VM}/schedule", form)
        event = answer.headers["hx-redirect"].rpartition("/")[2]
        assert "In impact" in await browser.text(f"/ui/events/{event}")


async def test_scope_that_polls_keeps_its_notice_and_needs_no_consent() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        assert "No VM of web polls" not in await browser.text(VM)
        assert 'name="now"' not in (await browser.get(VM)).body.decode()
        refused = await browser.post(f"{VM}/schedule", {"type": "Reboot", "now": "true"})
        assert (refused.status, b"notice must be at least 15m" in refused.body) == (409, True)
        answer = await browser.post(f"{VM}/schedule", {"type": "Reboot"})
        event = answer.headers["hx-redirect"].rpartition("/")[2]
        assert "Starts in 2026-03-02 10:15 UTC" in await browser.text(f"/ui/events/{event}")


async def test_emulator_asks_for_no_consent() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert 'name="unannounced"' not in (await browser.get(VM)).body.decode()


async def test_unknown_and_foreign_vms_have_an_error_page() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.OPERATOR, "shop"))
        assert (await browser.get("/ui/vms/shop/nothing")).status == 404
        for path in ("/ui/vms/web/web-0", "/ui/vms/nothing/web-0"):
            assert (await browser.get(path)).status == 403
            assert (await browser.post(f"{path}/operate", {"operation": "restart"})).status == 403
            assert (await browser.post(f"{path}/schedule", {"type": "Reboot"})).status == 403
        assert events(service) == []


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"operation": "restart", "notice": "20m", "unannounced": "true"}, ("Reboot", "User", ("web-0",))),
        ({"operation": "redeploy", "unannounced": "true", "reason": "x"}, ("Redeploy", "User", ("web-0",))),
        ({"operation": "fail", "reason": "disk"}, ("Redeploy", "Platform", ("web-0",))),
    ],
)
async def test_operation_creates_its_event(form: dict[str, str], expected: tuple[str, str, tuple[str, ...]]) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        answer = await browser.post(f"{VM}/operate", form)
        assert (answer.status, events(service)) == (204, [expected])


async def test_low_priority_vm_is_evicted_and_others_cannot_be() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert 'data-dialog="evict"' not in (await browser.get(VM)).body.decode()
        assert (await browser.post(f"{VM}/operate", {"operation": "evict", "unannounced": "true"})).status == 409
        page = (await browser.get("/ui/vms/batch/batch_0")).body.decode()
        assert 'data-dialog="evict"' in page
        answer = await browser.post("/ui/vms/batch/batch_0/operate", {"operation": "evict", "unannounced": "true"})
        assert (answer.status, events(service)) == (204, [("Preempt", "Platform", ("batch_0",))])


async def test_maintenance_is_scheduled_once_and_leads_to_its_event() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        form = {"type": "Freeze", "notice": "1h", "description": "short", "reason": "", "unannounced": "true"}
        answers = [await browser.post(f"{VM}/schedule", form, Idempotency_Key="k") for _ in range(2)]
        assert [answer.status for answer in answers] == [204, 204]
        assert answers[0].headers["hx-redirect"] == answers[1].headers["hx-redirect"]
        assert events(service) == [("Freeze", "Platform", ("web-0",))]
        assert (await browser.get(answers[0].headers["hx-redirect"])).status == 200


@pytest.mark.parametrize(
    "form",
    [
        {"type": "Reboot", "notice": "soon"},
        {"type": "Nothing"},
        {"type": "Reboot", "colour": "red"},
        {},
    ],
)
async def test_refused_form_changes_nothing(form: dict[str, str]) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        answer = await browser.post(f"{VM}/schedule", form)
        assert (answer.status in (400, 409), answer.headers["content-type"]) == (True, "text/plain; charset=utf-8")
        assert events(service) == []


async def test_scope_that_does_not_poll_is_named_before_and_needs_consent() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        silent, page = await browser.text(VM), (await browser.get(VM)).body.decode()
        refused = await browser.post(f"{VM}/schedule", {"type": "Reboot", "notice": "1h"})
        short = await browser.post(f"{VM}/schedule", {"type": "Reboot", "notice": "1m", "unannounced": "true"})
        before = events(service)
        restart = await browser.post(f"{VM}/operate", {"operation": "restart"})
        accepted = await browser.post(f"{VM}/operate", {"operation": "restart", "unannounced": "true"})
        listed = await browser.text(VM)
        poll = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert poll is not None
        await poll
        polled = await browser.text(VM)
    warning, box = "No VM of web polls for events", "Go ahead even if VMs will not hear of it"
    assert (warning in silent, warning in polled, box in silent) == (True, False, True)
    assert ("The VMs of web see the event at once" in silent, "The VMs of web see the event at once" in polled) == (
        False,
        True,
    )
    assert (refused.status, refused.body.decode().endswith(f"to go ahead anyway, check “{box}”")) == (409, True)
    assert 'name="unannounced" value="true" required' in page
    assert (short.status, "at least 15m" in short.body.decode()) == (409, True)
    assert (before, restart.status, accepted.status) == ([], 409, 204)
    assert "; Unannounced" in listed


async def test_viewer_gets_no_operation() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER))
        page = (await browser.get(VM)).body.decode()
        assert "data-dialog" not in page.replace('data-dialog="help"', "")
        assert (await browser.post(f"{VM}/operate", {"operation": "restart"})).status == 403
        assert (await browser.post(f"{VM}/schedule", {"type": "Reboot"})).status == 403


async def test_search_leads_to_events_and_vms_and_else_to_the_fleet() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        found = {}
        for text in (event.lower(), event[:8], "web-0", "web/web-0", "10.20.1.4", "no such", "", "web/nothing"):
            answer = await browser.get(f"/ui/search?q={text.replace(' ', '+')}")
            found[text] = answer.headers["location"]
        assert found == {
            event.lower(): f"/ui/events/{event.lower()}",
            event[:8]: f"/ui/events/{event}",
            "web-0": VM,
            "web/web-0": VM,
            "10.20.1.4": "/ui/fleet?q=10.20.1.4",
            "no such": "/ui/fleet?q=no%20such",
            "": "/ui/fleet?q=",
            "web/nothing": "/ui/fleet?q=web%2Fnothing",
        }


async def test_search_leads_to_an_ended_event_by_its_whole_id() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", f"/v1/events/{event}/cancel", {})
        found = [(await browser.get(f"/ui/search?q={text}")).headers["location"] for text in (event, event[:8])]
        assert found == [f"/ui/events/{event}", f"/ui/fleet?q={event[:8]}"]


async def test_search_does_not_reveal_other_scopes() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "shop"))
        ended = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", f"/v1/events/{ended}/cancel", {})
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        for text in (event, ended, event[:8], "web-0", "web%2Fweb-0"):
            assert (await browser.get(f"/ui/search?q={text}")).headers["location"].startswith("/ui/fleet?q=")
