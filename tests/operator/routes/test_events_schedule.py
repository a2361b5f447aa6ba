"""Scheduling events through the API, and refused requests."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.api import v1
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.explain import BlockerCode
from forewarn.core.impact import ImpactState
from forewarn.core.policy import PRODUCTION, AnnouncePolicy
from tests.fleet.fleets import FailingStore, UnsureStore
from tests.operator.running_api import TEN, run_api


async def test_event_is_shown_in_every_state() -> None:
    ask = v1.ScheduleEvents(
        type=EventType.REBOOT,
        vms=["web-3", "web/web-0"],
        notice="20m",
        duration="90s",
        description="New kernel.",
        reason="ticket 7",
    )
    async with run_api() as service:
        scheduled = await service.client(lambda api: api.schedule(ask))
        (event,) = scheduled.events
        assert scheduled.created == [v1.CreatedEvent(id=event.id, scope="web")]
        assert event == v1.Event(
            id=event.id,
            scope="web",
            type=EventType.REBOOT,
            status="Scheduled",
            source=Source.PLATFORM,
            cause=Cause.MAINTENANCE,
            vms=["web-3", "web-0"],
            update_domain=0,
            host="hv-0",
            created_at=TEN,
            not_before=TEN + timedelta(minutes=20),
            started_at=None,
            duration="1m30s",
            description="New kernel.",
            created_by="admin",
            reason="ticket 7",
            announced=True,
            approvals=[],
            impacts=[],
            explanation=["not before 2026-03-02 10:20:00Z, or earlier if any VM of the scope approves"],
            blockers=[
                v1.Blocker(
                    code=BlockerCode.NOT_BEFORE,
                    text="not before 2026-03-02 10:20:00Z",
                    until=TEN + timedelta(minutes=20),
                    vms=[],
                ),
                v1.Blocker(
                    code=BlockerCode.APPROVAL_REQUIRED,
                    text="it starts earlier if any VM of the scope approves",
                    until=TEN + timedelta(minutes=20),
                    vms=[],
                ),
            ],
        )
        await service.fleet.events.approve("web", "web-1", [event.id])
        (event,) = await service.client(lambda api: list(api.events()))
        assert (event.status, event.started_at, event.explanation, event.blockers) == ("Started", TEN, [], [])
        assert event.approvals == [v1.Approval(vm="web-1", approved_at=TEN)]
        assert [(impact.vm, impact.state, impact.attempt) for impact in event.impacts] == [
            ("web-3", ImpactState.BEGUN, 1),
            ("web-0", ImpactState.BEGUN, 1),
        ]
        await service.client(lambda api: api.advance("60s"))
        assert await service.client(lambda api: list(api.events())) == []


async def test_time_can_have_any_zone() -> None:
    async with run_api() as service:
        body = {"type": "Freeze", "vms": ["db-0"], "not_before": "2026-03-02T13:30:00+02:00"}
        reply = await service.request("POST", "/v1/events", body)
        assert (reply.status, reply.json["events"][0]["not_before"]) == (201, "2026-03-02T11:30:00Z")


@pytest.mark.parametrize(
    ("more", "cause", "status"),
    [
        ({"source": "User"}, "user", "Scheduled"),
        ({"failure": True}, "failure", "Started"),
        ({"notice": "0s"}, "maintenance", "Started"),
    ],
    ids=["user", "failure", "no notice"],
)
async def test_source_failure_and_notice_have_their_effect(more: dict[str, object], cause: str, status: str) -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"]} | more)
        (event,) = reply.json["events"]
        assert (event["cause"], event["status"]) == (cause, status)


async def test_events_come_in_pages_and_by_scope_and_vm() -> None:
    async with run_api() as service:
        for vms in (["web-0", "web-1", "web-2"], ["db-0"], ["web-0"], ["BackEnd_IN_1"]):
            await service.request("POST", "/v1/events", {"type": "Freeze", "vms": vms})
        everything = await service.client(lambda api: [(event.scope, event.vms) for event in api.events()])
        assert [scope for scope, _ in everything] == ["db-0", "shop", "web", "web", "web", "web"]
        assert everything[-1] == ("web", ["web-0"])
        for limit in (1, 2, 5, 6):
            seen = []
            after: str | None = ""
            while after is not None:
                page = (
                    await service.request("GET", f"/v1/events?limit={limit}&after={after.replace('+', '%2B')}")
                ).json
                seen += [(event["scope"], event["vms"]) for event in page["events"]]
                after = page["next"]
            assert seen == everything
        of_vm = await service.client(lambda api: [event.vms for event in api.events(vm="WEB-0")])
        of_scope = await service.client(lambda api: [event.vms for event in api.events(scope="shop")])
        of_neither = await service.client(lambda api: list(api.events(scope="shop", vm="web-0")))
        assert (of_vm, of_scope, of_neither) == ([["web-0"], ["web-0"]], [["BackEnd_IN_1"]], [])


@pytest.mark.parametrize("wrong", ["5", "soon", "", "m5"])
async def test_invalid_duration_is_reported(wrong: str) -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "notice": wrong})
    said = f'notice: {wrong!r} is not a duration: write it like "90s", "15m", "1h30m" or "2d"'
    assert (reply.status, reply.json["error"]["message"]) == (400, said)


REFUSALS: dict[str, tuple[str, str, object, int, str]] = {
    "unknown path": ("GET", "/v1/nothing", None, 404, "path-not-found"),
    "unsupported method": ("DELETE", "/v1/vms", None, 405, "method-not-allowed"),
    "invalid JSON": ("POST", "/v1/events", b"{", 400, "invalid-request"),
    "not an object": ("POST", "/v1/events", [], 400, "invalid-request"),
    "no body": ("POST", "/v1/events", None, 400, "invalid-request"),
    "unknown field": ("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "in": "5m"}, 400, "invalid-request"),
    "unknown field of the clock": ("POST", "/v1/clock/advance", {"by": "5m", "to": "6m"}, 400, "invalid-request"),
    "unknown parameter": ("GET", "/v1/vms?scop=web", None, 400, "invalid-request"),
    "limit too small": ("GET", "/v1/vms?limit=0", None, 400, "invalid-request"),
    "limit too large": ("GET", "/v1/events?limit=1001", None, 400, "invalid-request"),
    "limit not a number": ("GET", "/v1/events?limit=many", None, 400, "invalid-request"),
    "int for boolean": ("POST", "/v1/clock/advance", {"duration": "5m", "to_next_change": 0}, 400, "invalid-request"),
    "string for null": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "notice": "null"}, 400, "invalid-request",
    ),
    "no VMs": ("POST", "/v1/events", {"type": "Reboot", "vms": []}, 422, "invalid-value"),
    "too many VMs": ("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"] * 1001}, 400, "invalid-request"),
    "unknown type": ("POST", "/v1/events", {"type": "reboot", "vms": ["db-0"]}, 400, "invalid-request"),
    "invalid notice": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "notice": "5"}, 400, "invalid-request",
    ),
    "time without zone": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "not_before": "2026-03-02T10:00"},
        400, "invalid-request",
    ),
    "description too long": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "description": "x" * 513}, 400, "invalid-request",
    ),
    "body too large": ("POST", "/v1/events", b" " * (1024 * 1024 + 1), 413, "body-too-large"),
    "unknown scope": ("GET", "/v1/vms?scope=nothing", None, 404, "scope-not-found"),
    "events of an unknown VM": ("GET", "/v1/events?vm=nothing", None, 404, "vm-not-found"),
    "unknown VM": ("POST", "/v1/events", {"type": "Reboot", "vms": ["web-0", "nothing"]}, 404, "vm-not-found"),
    "VM of an unknown scope": ("POST", "/v1/events", {"type": "Reboot", "vms": ["none/web-0"]}, 404, "scope-not-found"),
    "notice and time": (
        "POST", "/v1/events",
        {"type": "Reboot", "vms": ["db-0"], "notice": "5m", "not_before": "2026-03-02T10:00:00Z"}, 422, "invalid-value",
    ),
    "notice of years": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "notice": "400d"}, 422, "invalid-value",
    ),
    "time outside of UTC": (
        "POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "not_before": "0001-01-01T00:00:00+01:00"},
        422, "invalid-value",
    ),
    "failure with Freeze": (
        "POST", "/v1/events", {"type": "Freeze", "vms": ["db-0"], "failure": True}, 422, "invalid-value",
    ),
    "preempt of a regular VM": ("POST", "/v1/events", {"type": "Preempt", "vms": ["db-0"]}, 409, "vm-not-evictable"),
    "Freeze with source User": (
        "POST", "/v1/events", {"type": "Freeze", "vms": ["db-0"], "source": "User"}, 409, "source-not-allowed",
    ),
    "clock neither": ("POST", "/v1/clock/advance", {}, 422, "invalid-value"),
    "clock both": ("POST", "/v1/clock/advance", {"duration": "5m", "to_next_change": True}, 422, "invalid-value"),
    "clock beyond its limit": ("POST", "/v1/clock/advance", {"duration": "36501d"}, 422, "invalid-value"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
async def test_impossible_request_is_refused_and_changes_nothing(case: str) -> None:
    method, path, body, status, code = REFUSALS[case]
    async with run_api() as service:
        before = await service.stored_state()
        reply = await service.request(method, path, body)
        assert (reply.status, reply.code) == (status, code)
        assert set(reply.json["error"]) == {"code", "message", "details"}
        assert reply.json["error"]["message"]
        assert await service.stored_state() == before


@pytest.mark.parametrize("key", ["", "x" * 65, "two words"], ids=["empty", "too long", "words"])
async def test_invalid_idempotency_key_is_refused(key: str) -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"]}, Idempotency_Key=key)
        assert (reply.status, reply.code) == (400, "invalid-request")


async def test_notice_that_is_too_short_is_refused_with_the_earliest_start() -> None:
    policy = msgspec.structs.replace(PRODUCTION, announce=AnnouncePolicy.ALWAYS)
    async with run_api(policy=policy) as service:
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"], "notice": "1m"})
        assert (reply.status, reply.code) == (409, "notice-too-short")
        assert reply.json["error"]["details"] == {
            "type": "Reboot",
            "minimum_notice": "15m",
            "earliest_start_at": "2026-03-02T10:15:00Z",
            "requested_start_at": "2026-03-02T10:01:00Z",
        }


async def test_full_disk_is_reported_and_nothing_changes() -> None:
    store = FailingStore()
    async with run_api(store=store) as service:
        store.full = True
        reply = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["db-0"]})
        assert (reply.status, reply.code) == (503, "save-failed")
        store.full = False
        assert await service.client(lambda api: list(api.events())) == []


@pytest.mark.parametrize("is_saved", [False, True])
async def test_request_with_an_unknown_outcome_can_be_repeated_with_its_key(*, is_saved: bool) -> None:
    store = UnsureStore()
    store.saves = is_saved
    body = {"type": "Reboot", "vms": ["db-0"]}
    async with run_api(store=store) as service:
        store.is_unsure = True
        reply = await service.request("POST", "/v1/events", body, Idempotency_Key="once")
        store.is_unsure = False
        again = await service.request("POST", "/v1/events", body, Idempotency_Key="once")
        events = await service.client(lambda api: list(api.events()))
    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert (again.status, len(events)) == (201, 1)


async def test_internal_error_is_reported_without_details() -> None:
    async with run_api() as service:
        service.fleet.replica.newest = None  # type: ignore[method-assign,assignment]
        reply = await service.request("GET", "/v1/vms")
        assert (reply.status, reply.code, b"Traceback" in reply.body) == (500, "internal-error", False)


async def test_options_request_returns_the_methods() -> None:
    async with run_api() as service:
        told = [await service.request(method, "/v1/events") for method in ("OPTIONS", "DELETE")]
        allowed = {"GET", "OPTIONS", "POST"}
        assert [(reply.status, set(reply.headers["allow"].split(", "))) for reply in told] == [
            (204, allowed),
            (405, allowed),
        ]


async def test_no_page_loads_external_resources() -> None:
    async with run_api() as service:
        for path in ("/schema", "/schema/swagger", "/openapi.json/swagger", "/openapi.json/redoc"):
            reply = await service.request("GET", path)
            assert (reply.status, b"http" in reply.body.replace(b"/openapi.json", b"")) == (404, False), path
