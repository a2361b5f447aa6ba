"""Event creation: the start of a request, the VMs that it selects, and repeated requests."""

from datetime import timedelta

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.operator.running_api import TEN, run_api


async def test_past_start_is_refused() -> None:
    async with run_api() as service:
        body = {"type": "Freeze", "vms": ["db-0"], "not_before": "2026-03-02T09:58:59Z"}
        refused = await service.request("POST", "/v1/events", body)
        open_events = await service.client(lambda api: list(api.events()))
    assert (refused.status, refused.code, open_events) == (422, "invalid-value", [])
    assert refused.json["error"]["message"] == (
        "not_before 2026-03-02 09:58:59Z is in the past: the service's time is 2026-03-02 10:00:00Z; "
        "to start at once, use now"
    )


async def test_start_within_the_tolerance_is_accepted() -> None:
    async with run_api() as service:
        body = {"type": "Freeze", "vms": ["db-0"], "not_before": "2026-03-02T09:59:00Z"}
        made = (await service.request("POST", "/v1/events", body)).json
    assert [(event["not_before"], event["status"]) for event in made["events"]] == [("2026-03-02T10:00:00Z", "Started")]


async def test_repeated_request_is_answered_after_its_start_has_passed() -> None:
    async with run_api() as service:
        body = {"type": "Freeze", "vms": ["db-0"], "not_before": "2026-03-02T10:20:00Z"}
        first = await service.request("POST", "/v1/events", body, Idempotency_Key="k1")
        await service.client(lambda api: api.advance("3h"))
        again = await service.request("POST", "/v1/events", body, Idempotency_Key="k1")
    assert (again.status, again.json["created"]) == (201, first.json["created"])


async def test_request_for_several_hosts_creates_an_event_for_each() -> None:
    ask = v1.ScheduleEvents(type=EventType.FREEZE, vms=["web-0", "web-1", "FrontEnd_IN_0", "BackEnd_IN_0"])
    async with run_api() as service:
        events = (await service.client(lambda api: api.schedule(ask))).events
        assert [(event.scope, event.vms) for event in events] == [
            ("web", ["web-0"]),
            ("web", ["web-1"]),
            ("shop", ["FrontEnd_IN_0", "BackEnd_IN_0"]),
        ]
        assert {event.not_before for event in events} == {TEN + timedelta(minutes=15)}


async def test_same_key_creates_no_second_event_even_after_the_end() -> None:
    body = {"type": "Reboot", "vms": ["db-0", "web-0"], "failure": True}
    async with run_api() as service:
        first = await service.request("POST", "/v1/events", body, Idempotency_Key="once")
        again = await service.request("POST", "/v1/events", body, Idempotency_Key="once")
        assert (first.status, again.json) == (201, first.json)
        await service.fleet.time.advance(timedelta(minutes=5))
        late = await service.request("POST", "/v1/events", body, Idempotency_Key="once")
        assert (late.json["created"], late.json["events"]) == (first.json["created"], [])
        other = await service.request("POST", "/v1/events", body, Idempotency_Key="twice")
        assert {made["id"] for made in other.json["created"]}.isdisjoint({made["id"] for made in first.json["created"]})


async def test_ambiguous_name_is_refused_with_candidates() -> None:
    text = "".join(
        f'[[scopes]]\nname = "{name}"\nkind = "cloud-service"\nvms = [{{ name = "FrontEnd_IN_0" }}]\n' for name in "ab"
    )
    async with run_api(fleet_file=text) as service:
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["FrontEnd_IN_0"]})
        assert (reply.status, reply.json) == (
            409,
            {
                "error": {
                    "code": "ambiguous-vm",
                    "message": "several VMs are called FrontEnd_IN_0: use a/FrontEnd_IN_0 or b/FrontEnd_IN_0",
                    "details": {"vm": "FrontEnd_IN_0", "candidates": ["a/FrontEnd_IN_0", "b/FrontEnd_IN_0"]},
                }
            },
        )
