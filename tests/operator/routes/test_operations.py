"""Named operations, and events for whole hosts, scopes and update domains."""

from datetime import timedelta

import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.policy import PRODUCTION
from tests.operator.running_api import TEN, run_api

Shape = tuple[EventType, Source, Cause, str, str]


def shape(event: v1.Event) -> Shape:
    return event.type, event.source, event.cause, event.status, event.created_by


async def test_owner_restarts_and_redeploys_a_vm() -> None:
    async with run_api() as service:
        restarted = await service.client(lambda api: api.restart(v1.Operate(vm="web-0", reason="it hangs")))
        redeployed = await service.client(lambda api: api.redeploy(v1.Operate(vm="web/web-1")))
    assert [shape(event) for event in restarted.events] == [
        (EventType.REBOOT, Source.USER, Cause.USER, "Scheduled", "admin")
    ]
    assert (restarted.events[0].reason, restarted.events[0].vms) == ("it hangs", ["web-0"])
    assert [shape(event) for event in redeployed.events] == [
        (EventType.REDEPLOY, Source.USER, Cause.USER, "Scheduled", "admin")
    ]


async def test_deletion_is_announced_with_a_terminate_notice_else_immediate() -> None:
    async with run_api() as service:
        announced = await service.client(lambda api: api.delete(v1.Operate(vm="batch_1")))
        at_once = await service.client(lambda api: api.delete(v1.Operate(vm="web-0", reason="too many"), key="d"))
        again = await service.client(lambda api: api.delete(v1.Operate(vm="web-0", reason="too many"), key="d"))
        names = await service.client(lambda api: [vm.name for vm in api.vms(scope="web")])
    assert [shape(event) for event in announced.events] == [
        (EventType.TERMINATE, Source.USER, Cause.DELETION, "Scheduled", "admin")
    ]
    assert at_once == again == v1.ScheduleResponse(created=[], events=[])
    assert "web-0" not in names


async def test_low_priority_vm_is_evicted_and_a_regular_one_is_not() -> None:
    async with run_api() as service:
        evicted = await service.client(lambda api: api.evict(v1.Evict(vm="batch_1", notice="45s")))
        with pytest.raises(RequestRefused, match="only low-priority") as refused:
            await service.client(lambda api: api.evict(v1.Evict(vm="web-0")))
    (event,) = evicted.events
    assert shape(event) == (EventType.PREEMPT, Source.PLATFORM, Cause.EVICTION, "Scheduled", "admin")
    assert (event.not_before, refused.value.code) == (TEN + timedelta(seconds=45), "vm-not-evictable")


async def test_host_failure_affects_all_its_vms_without_notice() -> None:
    async with run_api() as service:
        on_host = {f"{vm.scope}/{vm.name}" for vm in await service.client(lambda api: list(api.vms(host="hv-0")))}
        failed = await service.client(lambda api: api.fail(v1.Fail(host="hv-0", reason="memory error")))
    assert {f"{event.scope}/{vm}" for event in failed.events for vm in event.vms} == on_host
    assert {shape(event) for event in failed.events} == {
        (EventType.REDEPLOY, Source.PLATFORM, Cause.FAILURE, "Started", "admin")
    }


async def test_failure_of_vms_can_be_a_reboot() -> None:
    async with run_api() as service:
        ask = v1.Fail(vms=["web-0", "db-0"], type=EventType.REBOOT)
        failed = await service.client(lambda api: api.fail(ask))
    assert [(event.type, event.vms) for event in failed.events] == [
        (EventType.REBOOT, ["web-0"]),
        (EventType.REBOOT, ["db-0"]),
    ]


async def test_predicted_failure_is_a_redeploy_days_ahead() -> None:
    async with run_api() as service:
        ask = v1.PredictFailure(host="hv-0", notice="7d")
        predicted = await service.client(lambda api: api.predict_failure(ask))
    assert {(event.type, event.not_before, event.host) for event in predicted.events} == {
        (EventType.REDEPLOY, TEN + timedelta(days=7), "hv-0")
    }


async def test_events_are_created_for_a_host_a_scope_and_an_update_domain() -> None:
    async with run_api() as service:
        vms = await service.client(lambda api: list(api.vms()))
        for ask, expected in [
            (v1.ScheduleEvents(type=EventType.FREEZE, host="hv-0"), [vm for vm in vms if vm.host == "hv-0"]),
            (v1.ScheduleEvents(type=EventType.FREEZE, scope="web"), [vm for vm in vms if vm.scope == "web"]),
            (
                v1.ScheduleEvents(type=EventType.FREEZE, scope="web", update_domain=1),
                [vm for vm in vms if vm.scope == "web" and vm.update_domain == 1],
            ),
        ]:
            made = await service.client(lambda api, ask=ask: api.schedule(ask))  # type: ignore[misc]  # bound now
            assert sorted(f"{event.scope}/{vm}" for event in made.events for vm in event.vms) == sorted(
                f"{vm.scope}/{vm.name}" for vm in expected
            )
            assert len({(event.scope, event.update_domain, event.host) for event in made.events}) == len(made.events)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("events", {"type": "Freeze"}, 422, "invalid-value"),
        ("events", {"type": "Freeze", "vms": ["web-0"], "host": "hv-0"}, 422, "invalid-value"),
        ("events", {"type": "Freeze", "update_domain": 1}, 422, "invalid-value"),
        ("events", {"type": "Freeze", "scope": "web", "update_domain": 77}, 422, "invalid-value"),
        ("events", {"type": "Freeze", "scope": "nowhere"}, 404, "scope-not-found"),
        ("events", {"type": "Freeze", "host": "nowhere"}, 404, "host-not-found"),
        ("operations/fail", {}, 422, "invalid-value"),
        ("operations/fail", {"host": "nowhere"}, 404, "host-not-found"),
        ("operations/fail", {"host": "hv-0", "type": "Freeze"}, 422, "invalid-value"),
        ("operations/restart", {"vm": "nothing"}, 404, "vm-not-found"),
        ("operations/restart", {"vm": "nowhere/web-0"}, 404, "scope-not-found"),
        ("operations/restart", {}, 400, "invalid-request"),
        ("operations/restart", {"vm": "web-0", "when": "now"}, 400, "invalid-request"),
        ("operations/delete", {"vm": "nothing"}, 404, "vm-not-found"),
        ("operations/evict", {"vm": "batch_1", "notice": "soon"}, 400, "invalid-request"),
        ("operations/evict", {"vm": "batch_1", "notice": "999d"}, 422, "invalid-value"),
        ("operations/predict-failure", {"vms": ["web-0"]}, 400, "invalid-request"),
    ],
)
async def test_impossible_operation_is_refused_and_changes_nothing(
    path: str, body: dict[str, object], status: int, code: str
) -> None:
    async with run_api() as service:
        kept = await service.stored_state()
        reply = await service.request("POST", f"/v1/{path}", body)
        assert (reply.status, reply.code, await service.stored_state()) == (status, code, kept)


async def test_eleventh_operation_of_users_is_refused() -> None:
    async with run_api() as service:
        for _ in range(10):
            assert (await service.request("POST", "/v1/operations/restart", {"vm": "web-0"})).status == 201
        reply = await service.request("POST", "/v1/operations/restart", {"vm": "web-0"})
    assert (reply.status, reply.code) == (409, "too-many-operations")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("restart", {"vm": "web-0"}),
        ("redeploy", {"vm": "web-0"}),
        ("evict", {"vm": "batch_1"}),
        ("delete", {"vm": "batch_1"}),
        ("delete", {"vm": "db-0"}),
        ("fail", {"host": "hv-0"}),
        ("fail", {"vms": ["web-0", "db-0"]}),
        ("predict-failure", {"host": "hv-0", "notice": "2d"}),
    ],
)
async def test_repeated_operation_gets_the_same_response_after_its_vms_are_gone(
    operation: str, body: dict[str, object]
) -> None:
    async with run_api() as service:
        path = f"/v1/operations/{operation}"
        first = await service.request("POST", path, body, Idempotency_Key="once")
        at_once = await service.request("POST", path, body, Idempotency_Key="once")
        await service.fleet.time.advance(timedelta(hours=5))
        kept = await service.stored_state()
        late = await service.request("POST", path, body, Idempotency_Key="once")
        assert first.status in (200, 201)
        assert (at_once.status, late.status) == (first.status, first.status)
        # The created events are the same; their state may differ, because the impacts of a failure continue.
        assert (at_once.json["created"], late.json["created"]) == (first.json["created"], first.json["created"])
        assert await service.stored_state() == kept
        other = await service.request("POST", path, body | {"reason": "another"}, Idempotency_Key="once")
    assert (other.status, other.code) == (409, "idempotency-key-reused")


@pytest.mark.parametrize(("number", "status"), [("1", 201), ("1.0", 201), ("1e0", 201), ("1.5", 400), ("true", 400)])
async def test_integral_float_is_accepted_as_integer(number: str, status: int) -> None:
    async with run_api() as service:
        body = f'{{"type": "Freeze", "scope": "web", "update_domain": {number}}}'
        assert (await service.request("POST", "/v1/events", body.encode())).status == status


OPERATIONS: dict[str, dict[str, object]] = {
    "restart": {"vm": "batch_1"},
    "redeploy": {"vm": "batch_1"},
    "delete": {"vm": "batch_1"},
    "evict": {"vm": "batch_1"},
    "predict-failure": {"vms": ["batch_1"], "notice": "3d"},
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_operation_that_vms_will_not_hear_of_needs_unannounced(operation: str) -> None:
    path, body = f"/v1/operations/{operation}", OPERATIONS[operation]
    async with run_api(policy=PRODUCTION) as service:
        before = await service.stored_state()
        refused = await service.request("POST", path, body)
        unchanged = await service.stored_state() == before
        made = await service.request("POST", path, body | {"unannounced": True})
    assert (refused.status, refused.code, unchanged) == (409, "not-announced", True)
    assert [event["status"] for event in made.json["events"]] == ["Scheduled"]


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - {"predict-failure"}))
async def test_operation_starts_without_notice_only_with_now(operation: str) -> None:
    body = OPERATIONS[operation] | {"now": True, "unannounced": True}
    async with run_api(policy=PRODUCTION) as service:
        made = await service.request("POST", f"/v1/operations/{operation}", body)
    assert [event["status"] for event in made.json["events"]] == ["Started"]


async def test_failures_and_operations_approved_in_advance_need_no_consent() -> None:
    async with run_api(policy=PRODUCTION) as service:
        await service.client(lambda api: api.change_scope("web", v1.ChangeScope(auto_approve=[EventType.REBOOT])))
        failed = await service.client(lambda api: api.fail(v1.Fail(vms=["web-0"])))
        restarted = await service.client(lambda api: api.restart(v1.Operate(vm="web-1")))
    assert [event.status for event in (*failed.events, *restarted.events)] == ["Started", "Started"]
