"""Events through the API: lists, details, and operations on events."""

from datetime import timedelta

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.access import Role
from forewarn.core.event import EventType, Source
from forewarn.core.impact import Failed, ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.policy import PRODUCTION
from forewarn.core.scope import EventOutcome
from tests.operator.running_api import TEN, RunningApi, event_detail, run_api, schedule_event, timeline_lines

NEVER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def everywhere() -> list[tuple[str, list[str], dict[str, object]]]:
    """Events of all kinds for the tests of the list."""
    return [
        ("Freeze", ["web-0"], {}),
        ("Reboot", ["web-1"], {"source": "User"}),
        ("Redeploy", ["FrontEnd_IN_0"], {"failure": True}),
        ("Preempt", ["batch_1"], {}),
        ("Freeze", ["db-0"], {}),
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["batch_1", "db-0", "FrontEnd_IN_0", "web-0", "web-1"]),
        ("type=Freeze", ["db-0", "web-0"]),
        ("status=Started", ["FrontEnd_IN_0"]),
        ("status=Scheduled&type=Freeze", ["db-0", "web-0"]),
        ("source=User", ["web-1"]),
        ("scope=web&source=Platform", ["web-0"]),
        ("host=hv-0", ["FrontEnd_IN_0", "web-0"]),
        ("vm=batch_1&type=Freeze", []),
        ("vm=batch_1&type=Preempt", ["batch_1"]),
    ],
)
async def test_events_are_listed_by_filter(
    query: str, expected: list[str], everywhere: list[tuple[str, list[str], dict[str, object]]]
) -> None:
    async with run_api() as service:
        for type_, vms, more in everywhere:
            await schedule_event(service, type_, *vms, **more)
        page = (await service.request("GET", f"/v1/events?{query}")).json
    assert [event["vms"][0] for event in page["events"]] == expected


async def test_pages_respect_filters(
    everywhere: list[tuple[str, list[str], dict[str, object]]],
) -> None:
    async with run_api() as service:
        for type_, vms, more in everywhere:
            await schedule_event(service, type_, *vms, **more)
        first = (await service.request("GET", "/v1/events?type=Freeze&limit=1")).json
        after = first["next"].replace("+", "%2B")
        second = (await service.request("GET", f"/v1/events?type=Freeze&limit=1&after={after}")).json
    assert [event["vms"] for event in first["events"] + second["events"]] == [["db-0"], ["web-0"]]
    assert second["next"] is None


@pytest.mark.parametrize("path", ["", "/cancel", "/approve", "/retry", "/resolve"])
async def test_unknown_event_is_not_found(path: str) -> None:
    bodies: dict[str, object] = {"/approve": {"vm": "web-0"}, "/resolve": {"done": True, "reason": "x"}}
    async with run_api() as service:
        method, body = ("POST", bodies.get(path, {})) if path else ("GET", None)
        reply = await service.request(method, f"/v1/events/{NEVER}{path}", body)
    assert (reply.status, reply.code) == (404, "event-not-found")


async def test_scheduled_event_is_cancelled_and_a_started_one_is_not() -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0")
        cancelled = await service.client(lambda api: api.cancel(id_, v1.CancelEvent(reason="withdrawn")))
        assert (cancelled.event, cancelled.outcome, cancelled.journal[-1].reason) == (
            None,
            EventOutcome.CANCELED,
            "withdrawn",
        )
        with pytest.raises(NotFound, match="there is no open event"):
            await service.client(lambda api: api.cancel(id_, v1.CancelEvent()))
        started = await schedule_event(service, "Reboot", "web-0", failure=True)
        with pytest.raises(RequestRefused, match="is Started: it cannot be canceled") as refused:
            await service.client(lambda api: api.cancel(started, v1.CancelEvent()))
        assert (refused.value.status, refused.value.code) == (409, "invalid-transition")


async def test_event_is_approved_on_behalf_of_a_vm() -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0")
        ask = v1.ApproveEvent(vm="web/web-2", reason="drained by hand")
        approved = await service.client(lambda api: api.approve(id_, ask))
        assert approved.event is not None
        assert (approved.event.status, approved.event.approvals) == (
            "Started",
            [v1.Approval(vm="web-2", approved_at=TEN)],
        )
        note = next(entry for entry in approved.journal if entry.action is EntryKind.APPROVED)
        assert (note.actor, note.reason) == ("admin", "in the name of web-2: drained by hand")
        with pytest.raises(NotFound, match="BackEnd_IN_0"):
            await service.client(lambda api: api.approve(id_, v1.ApproveEvent(vm="shop/BackEnd_IN_0")))


async def test_failed_impact_is_retried_then_resolved() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no power"), Failed("still none"))
        id_ = await schedule_event(service, "Reboot", "web-0", failure=True)
        await service.fleet.time.advance(timedelta(hours=1))
        failed = await event_detail(service, id_)
        assert failed.event is not None
        assert [(impact.state, impact.reason) for impact in failed.event.impacts] == [(ImpactState.FAILED, "no power")]
        assert failed.event.explanation == ["the work on web-0 has failed: no power"]

        retried = await service.client(lambda api: api.retry(id_, v1.RetryImpact(reason="power is back"), key="r1"))
        assert (retried.journal[-1].action, retried.journal[-1].actor) == (EntryKind.IMPACT_RETRIED, "admin")
        again = await service.client(lambda api: api.retry(id_, v1.RetryImpact(reason="power is back"), key="r1"))
        assert sum(entry.action is EntryKind.IMPACT_RETRIED for entry in again.journal) == 1
        await service.fleet.time.advance(timedelta(hours=1))
        with pytest.raises(RequestRefused, match="reason") as refused:
            await service.client(lambda api: api.resolve(id_, v1.ResolveImpact(done=False, reason=" ")))
        assert refused.value.status == 422
        given_up = await service.client(
            lambda api: api.resolve(id_, v1.ResolveImpact(done=False, reason="scrapped", vm="web-0"))
        )
    assert (given_up.outcome, given_up.event) == (EventOutcome.FAILED, None)
    assert timeline_lines(list(given_up.journal))[-2:] == [
        (EntryKind.IMPACT_GIVEN_UP, "admin"),
        (EntryKind.FAILED, "admin"),
    ]


async def test_impact_resolved_as_done_completes_the_event() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no answer"))
        id_ = await schedule_event(service, "Reboot", "web-0", failure=True)
        await service.fleet.time.advance(timedelta(hours=1))
        done = await service.client(lambda api: api.resolve(id_, v1.ResolveImpact(done=True, reason="it is up")))
    assert done.outcome is EventOutcome.COMPLETED


@pytest.mark.parametrize("path", ["retry", "resolve"])
async def test_nothing_to_retry_or_resolve_is_refused(path: str) -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0")
        body = {"done": True, "reason": "x"} if path == "resolve" else {}
        reply = await service.request("POST", f"/v1/events/{id_}/{path}", body)
    assert (reply.status, reply.code) == (409, "invalid-transition")


@pytest.mark.parametrize("path", ["retry", "resolve"])
async def test_work_on_an_unaffected_vm_cannot_be_retried_or_resolved(path: str) -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no power"))
        id_ = await schedule_event(service, "Reboot", "web-0", failure=True)
        await service.fleet.time.advance(timedelta(hours=1))
        body = {"vm": "web-1"} | ({"done": True, "reason": "x"} if path == "resolve" else {})
        before = await service.stored_state()
        reply = await service.request("POST", f"/v1/events/{id_}/{path}", body)
        assert await service.stored_state() == before
    assert (reply.status, reply.json["error"]) == (
        404,
        {
            "code": "vm-not-affected",
            "message": f"event {id_} does not affect web-1: name a VM that it affects, or no VM to select all of them",
            "details": {"vm": "web-1", "event": id_},
        },
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("cancel", {"reason": "no"}),
        ("approve", {"vm": "web-1"}),
    ],
)
async def test_repeated_change_has_no_effect_and_is_answered_after_the_end(path: str, body: dict[str, object]) -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0")
        first = await service.request("POST", f"/v1/events/{id_}/{path}", body, Idempotency_Key="k")
        await service.fleet.time.advance(timedelta(hours=1))
        kept = await service.stored_state()
        again = await service.request("POST", f"/v1/events/{id_}/{path}", body, Idempotency_Key="k")
        assert (first.status, again.status, await service.stored_state()) == (200, 200, kept)
        other = await service.request("POST", f"/v1/events/{id_}/{path}", body | {"reason": "x"}, Idempotency_Key="k")
    assert (other.status, other.code) == (409, "idempotency-key-reused")


async def test_token_of_one_scope_sees_and_changes_nothing_else() -> None:
    async with run_api() as service:
        shop = await service.token("shop-only", Role.OPERATOR, "shop")
        web_event = await schedule_event(service, "Freeze", "web-0")
        own = await service.request("POST", "/v1/events", {"type": "Freeze", "vms": ["BackEnd_IN_0"]}, token=shop)
        assert own.status == 201
        listed = (await service.request("GET", "/v1/events", token=shop)).json["events"]
        assert [event["scope"] for event in listed] == ["shop"]
        kept = await service.stored_state()
        unknown, forbidden = (404, {"event-not-found", "vm-not-found", "host-not-found"}), (403, {"scope-forbidden"})
        for method, path, body, (status, codes) in [
            ("GET", f"/v1/events/{web_event}", None, unknown),
            ("GET", "/v1/events?scope=web", None, forbidden),
            ("GET", "/v1/events?vm=web-0", None, unknown),
            ("GET", "/v1/events?scope=nothing", None, forbidden),
            ("POST", f"/v1/events/{web_event}/cancel", {}, unknown),
            ("POST", f"/v1/events/{web_event}/approve", {"vm": "web-0"}, unknown),
            ("POST", "/v1/events", {"type": "Freeze", "vms": ["web-0"]}, unknown),
            ("POST", "/v1/events", {"type": "Freeze", "vms": ["web/nothing"]}, forbidden),
            ("POST", "/v1/events", {"type": "Freeze", "scope": "web"}, forbidden),
            ("POST", "/v1/events", {"type": "Freeze", "host": "hv-0"}, forbidden),
            ("POST", "/v1/operations/restart", {"vm": "web-0"}, unknown),
            ("POST", "/v1/operations/delete", {"vm": "web-0"}, unknown),
        ]:
            reply = await service.request(method, path, body, token=shop)
            assert reply.status == status, (path, reply.json)
            assert reply.code in codes, (path, reply.json)
        assert await service.stored_state() == kept


async def test_viewer_changes_nothing() -> None:
    async with run_api() as service:
        viewer = await service.token("looks", Role.VIEWER)
        event = await schedule_event(service, "Freeze", "web-0")
        for path, body in [
            ("/v1/events", {"type": "Freeze", "vms": ["db-0"]}),
            (f"/v1/events/{event}/cancel", {}),
            (f"/v1/events/{event}/approve", {"vm": "web-0"}),
            (f"/v1/events/{event}/retry", {}),
            (f"/v1/events/{event}/resolve", {"done": True, "reason": "x"}),
            ("/v1/operations/restart", {"vm": "web-0"}),
            ("/v1/operations/fail", {"host": "hv-0"}),
            ("/v1/holds", {"reason": "x"}),
            ("/v1/holds/release", {}),
        ]:
            reply = await service.request("POST", path, body, token=viewer)
            assert (reply.status, reply.code) == (403, "forbidden"), path
        assert (await service.request("GET", f"/v1/events/{event}", token=viewer)).status == 200


async def test_client_supports_every_event_filter() -> None:
    async with run_api() as service:
        frozen = await schedule_event(service, "Freeze", "web-0")
        (made,) = (await service.request("POST", "/v1/operations/restart", {"vm": "db-0"})).json["created"]
        host = service.fleet.replica.find("web-0")[1].host
        found = [
            await service.client(lambda api: [event.id for event in api.events(host=host)]),
            await service.client(lambda api: [event.id for event in api.events(source=Source.USER)]),
            await service.client(lambda api: [event.id for event in api.events(type_=EventType.FREEZE)]),
            await service.client(lambda api: [event.id for event in api.events(status="Started")]),
            await service.client(lambda api: [event.id for event in api.events(vm="db-0", scope="db-0")]),
        ]
    assert found == [[frozen], [made["id"]], [frozen], [], [made["id"]]]


async def test_client_sends_empty_names() -> None:
    """An empty variable must not list everything."""
    async with run_api() as service:
        with pytest.raises(RequestRefused, match="scope: must not be empty; omit it to match everything"):
            await service.client(lambda api: list(api.events(scope="")))


async def poll(service: RunningApi, scope: str) -> None:
    """Let a VM of the scope poll, which enables it."""
    saved = service.fleet.last_seen.record_request(service.fleet.replica.view(scope))
    assert saved is not None
    await saved


async def test_event_that_vms_will_not_hear_of_needs_unannounced() -> None:
    body = {"type": "Reboot", "vms": ["web-0", "db-0"]}
    async with run_api(policy=PRODUCTION) as service:
        before = await service.stored_state()
        refused = await service.request("POST", "/v1/events", body)
        unchanged = await service.stored_state() == before
        made = await service.request("POST", "/v1/events", body | {"unannounced": True})
    assert (refused.status, refused.code, unchanged) == (409, "not-announced", True)
    assert refused.json["error"]["details"] == {"scopes": ["web", "db-0"], "scope_count": "2", "vm_count": "2"}
    assert [(event["status"], event["not_before"], event["announced"]) for event in made.json["events"]] == [
        ("Scheduled", "2026-03-02T10:15:00Z", False)
    ] * 2


async def test_now_starts_only_where_no_vm_polls() -> None:
    body = {"type": "Reboot", "vms": ["db-0"], "now": True}
    async with run_api(policy=PRODUCTION) as service:
        refused = await service.request("POST", "/v1/events", body)
        made = await service.request("POST", "/v1/events", body | {"unannounced": True})
        await poll(service, "web")
        polling = await service.request("POST", "/v1/events", body | {"vms": ["web-0"], "unannounced": True})
        both = await service.request("POST", "/v1/events", body | {"notice": "15m"})
    assert (refused.status, refused.code) == (409, "not-announced")
    assert [event["status"] for event in made.json["events"]] == ["Started"]
    assert (polling.status, polling.code) == (409, "notice-too-short")
    assert (both.status, both.code) == (422, "invalid-value")


async def test_scope_that_polls_needs_no_consent() -> None:
    async with run_api(policy=PRODUCTION) as service:
        await poll(service, "web")
        made = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["web-0"]})
    assert [(event["announced"], event["not_before"]) for event in made.json["events"]] == [
        (True, "2026-03-02T10:15:00Z")
    ]


async def test_repeated_request_is_the_same_with_and_without_its_consent() -> None:
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=["db-0"])
    consent = v1.ScheduleEvents(type=EventType.REBOOT, vms=["db-0"], unannounced=True)
    async with run_api(policy=PRODUCTION) as service:
        with pytest.raises(RequestRefused):
            await service.client(lambda api: api.schedule(ask, key="k"))
        first = await service.client(lambda api: api.schedule(consent, key="k"))
        again = await service.client(lambda api: api.schedule(ask, key="k"))
    assert again.created == first.created
