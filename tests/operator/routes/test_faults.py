"""Faults through the API: permissions, responses, and refusal by a service for real VMs."""

from datetime import timedelta

import pytest

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.fault import FaultKind
from forewarn.core.journal import EntryKind
from tests.operator.running_api import TEN, TOKEN, RunningApi, run_api

SLOW = {"kind": "slow", "vm": "web-0", "duration": "30s", "times": 4, "amount": "2.5s", "reason": "patience?"}


async def ids(service: RunningApi) -> list[str]:
    """Return the current faults."""
    return [fault["id"] for fault in (await service.request("GET", "/v1/faults")).json["faults"]]


async def test_fault_is_set_listed_and_cleared() -> None:
    async with run_api() as service:
        made = await service.request("POST", "/v1/faults", SLOW)
        assert (made.status, made.json) == (
            201,
            {
                "id": "F1",
                "kind": "slow",
                "vm": "web/web-0",
                "amount": "2.5s",
                "until": "2026-03-02T10:00:30Z",
                "times": 4,
                "hits": 0,
                "created_by": "admin",
                "created_at": "2026-03-02T10:00:00Z",
            },
        )
        assert (await service.request("GET", "/v1/faults")).json == {"faults": [made.json]}
        cleared = await service.request("DELETE", "/v1/faults/F1?reason=enough")
        assert (cleared.status, cleared.body, await ids(service)) == (204, b"", [])
        history = await service.client(
            lambda api: list(api.journal(vm="web-0", actions=[EntryKind.FAULT_SET, EntryKind.FAULT_CLEARED]))
        )
    assert [(line.action, line.actor, line.reason, line.vms) for line in history] == [
        (EntryKind.FAULT_SET, "admin", "patience?", ["web-0"]),
        (EntryKind.FAULT_CLEARED, "admin", "enough", ["web-0"]),
    ]


async def test_client_sets_lists_and_clears() -> None:
    async with run_api() as service:
        ask = v1.SetFault(kind=FaultKind.WRONG_DATE, amount="-1h30m")
        fault = await service.client(lambda api: api.set_fault(ask))
        assert (fault.vm, fault.amount, fault.until, fault.times) == (None, "-1h30m", None, None)
        assert await service.client(lambda api: api.faults()) == v1.Faults(faults=[fault])
        other = await service.client(lambda api: api.set_fault(v1.SetFault(kind=FaultKind.RESET, vm="db-0")))
        await service.client(lambda api: api.clear_fault(fault.id))
        assert await service.client(lambda api: api.clear_faults(reason="done")) == v1.Faults(faults=[other])
        assert await service.client(lambda api: api.clear_faults()) == v1.Faults(faults=[])


async def test_fault_ends_after_its_duration_and_is_journaled() -> None:
    async with run_api() as service:
        await service.request("POST", "/v1/faults", {"kind": "hang", "duration": "30s"})
        await service.fleet.time.advance(timedelta(minutes=1))
        assert await ids(service) == []
        (line,) = await service.client(lambda api: list(api.journal(actions=[EntryKind.FAULT_ENDED])))
    assert (line.at, line.actor, line.reason) == (TEN + timedelta(seconds=30), "faults", "it expired")


async def test_same_key_of_another_caller_is_independent() -> None:
    async with run_api() as service:
        other = await service.token("other", Role.OPERATOR)
        for body, token in ((SLOW, TOKEN), ({"kind": "hang"}, other), (SLOW, TOKEN)):
            assert (await service.request("POST", "/v1/faults", body, token=token, Idempotency_Key="k")).status == 201
        assert await ids(service) == ["F1", "F2"]


async def test_same_key_has_no_second_effect() -> None:
    async with run_api() as service:
        first = await service.request("POST", "/v1/faults", SLOW, Idempotency_Key="k")
        again = await service.request("POST", "/v1/faults", SLOW, Idempotency_Key="k")
        other = await service.request("POST", "/v1/faults", {"kind": "hang"}, Idempotency_Key="k")
        assert (again.json, await ids(service)) == (first.json, ["F1"])
        assert (other.status, other.code) == (409, "idempotency-key-reused")
        statuses = [(await service.request("DELETE", "/v1/faults/F1", Idempotency_Key="c")).status for _ in range(2)]
        assert statuses == [204, 204]
        assert (await service.request("DELETE", "/v1/faults/F1", Idempotency_Key="d")).status == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid-request"),
        ({"kind": "410"}, 400, "invalid-request"),
        ({"kind": "slow", "times": 0}, 400, "invalid-request"),
        ({"kind": "slow", "duration": "soon"}, 400, "invalid-request"),
        ({"kind": "slow", "for": "30s"}, 400, "invalid-request"),
        ({"kind": "slow", "duration": "0s"}, 422, "invalid-value"),
        ({"kind": "slow", "amount": "-1s"}, 422, "invalid-value"),
        ({"kind": "reset", "amount": "1s"}, 422, "invalid-value"),
        ({"kind": "late-first-answer", "amount": "2m1s"}, 422, "invalid-value"),
        ({"kind": "slow", "vm": "nothing"}, 404, "vm-not-found"),
    ],
)
async def test_impossible_faults_are_refused_and_change_nothing(
    body: dict[str, object], status: int, code: str
) -> None:
    async with run_api() as service:
        kept = await service.stored_state()
        reply = await service.request("POST", "/v1/faults", body)
        assert (reply.status, reply.code) == (status, code)
        assert (await ids(service), await service.stored_state()) == ([], kept)


async def test_unknown_fault_is_not_found() -> None:
    async with run_api() as service:
        reply = await service.request("DELETE", "/v1/faults/F7")
    assert (reply.status, reply.code) == (404, "fault-not-found")


async def test_service_for_real_vms_refuses_faults() -> None:
    async with run_api(emulates=False) as service:
        kept = await service.stored_state()
        for method, path, body in [
            ("GET", "/v1/faults", None),
            ("POST", "/v1/faults", SLOW),
            ("DELETE", "/v1/faults/F1", None),
            ("DELETE", "/v1/faults", None),
        ]:
            reply = await service.request(method, path, body)
            assert (reply.status, reply.code) == (409, "emulator-only")
        assert await service.stored_state() == kept


async def test_viewer_can_list_but_not_set_faults() -> None:
    async with run_api() as service:
        await service.request("POST", "/v1/faults", SLOW)
        viewer = await service.token("eve", Role.VIEWER)
        assert len((await service.request("GET", "/v1/faults", token=viewer)).json["faults"]) == 1
        for method, path, body in [
            ("POST", "/v1/faults", SLOW),
            ("DELETE", "/v1/faults/F1", None),
            ("DELETE", "/v1/faults", None),
        ]:
            assert (await service.request(method, path, body, token=viewer)).status == 403


async def test_token_of_one_scope_is_limited_to_its_vms() -> None:
    async with run_api() as service:
        web = await service.token("web-only", Role.OPERATOR, "web")
        for body in ({"kind": "hang"}, {"kind": "hang", "vm": "db-0"}, {"kind": "hang", "vm": "web-0"}):
            await service.request("POST", "/v1/faults", body)
        seen = (await service.request("GET", "/v1/faults", token=web)).json["faults"]
        assert [fault["vm"] for fault in seen] == [None, "web/web-0"]
        for path, body, expected in [
            ("/v1/faults", {"kind": "hang"}, (403, "forbidden")),
            ("/v1/faults", {"kind": "hang", "vm": "db-0"}, (404, "vm-not-found")),
            ("/v1/faults", {"kind": "hang", "vm": "db-0/db-0"}, (403, "scope-forbidden")),
        ]:
            reply = await service.request("POST", path, body, token=web)
            assert (reply.status, reply.code) == expected
        refused = [(await service.request("DELETE", f"/v1/faults/F{n}", token=web)).code for n in (1, 2)]
        assert refused == ["forbidden", "fault-not-found"]
        cleared = (await service.request("DELETE", "/v1/faults", token=web)).json["faults"]
        assert ([fault["id"] for fault in cleared], await ids(service)) == (["F3"], ["F1", "F2"])
