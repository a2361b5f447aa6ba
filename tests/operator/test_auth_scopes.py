"""A token for some scopes learns nothing about others from any response."""

from typing import Any

import pytest

from forewarn.api.fleet_file import derived_id
from forewarn.core.access import Role
from tests.operator.running_api import RunningApi, run_api

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 2 }, { name = "same", host = "hv-1" }]

[[scopes]]
name = "hidden"
kind = "availability-set"
hosts = ["hv-0", "hv-7"]
vms = [
  { name = "db-0", addresses = [{ ip = "10.0.0.4", network = "n" }] },
  { name = "db-1", addresses = [{ ip = "10.0.0.5", network = "n" }] },
  { name = "same", host = "hv-7" },
]

[[scopes]]
name = "third"
kind = "availability-set"
vms = [{ name = "same" }]
"""

EVENT = "E0E0E0E0-0000-0000-0000-000000000000"
DB_ID = derived_id("vm", "hidden", "db-0")
ADDRESS = {"addresses": [{"ip": "10.0.0.4", "network": "n"}]}

ASKED: dict[str, tuple[str, str, object, int, str]] = {
    "VM by its bare name": ("GET", "/v1/vms/db-0", None, 404, "vm-not-found"),
    "missing VM": ("GET", "/v1/vms/db-9", None, 404, "vm-not-found"),
    "change": ("PATCH", "/v1/vms/db-0", {"host": "x"}, 404, "vm-not-found"),
    "removal": ("DELETE", "/v1/vms/db-0", None, 404, "vm-not-found"),
    "deletion": ("POST", "/v1/operations/delete", {"vm": "db-0"}, 404, "vm-not-found"),
    "restart": ("POST", "/v1/operations/restart", {"vm": "db-0"}, 404, "vm-not-found"),
    "events": ("GET", "/v1/events?vm=db-0", None, 404, "vm-not-found"),
    "history": ("GET", "/v1/journal?vm=db-0", None, 404, "vm-not-found"),
    "event": ("GET", f"/v1/events/{EVENT}", None, 404, "event-not-found"),
    "cancelling": ("POST", f"/v1/events/{EVENT}/cancel", {}, 404, "event-not-found"),
    "approving": ("POST", f"/v1/events/{EVENT}/approve", {"vm": "db-0"}, 404, "event-not-found"),
    "host": ("POST", "/v1/events", {"type": "Reboot", "host": "hv-7"}, 404, "host-not-found"),
    "host in part": ("POST", "/v1/events", {"type": "Reboot", "host": "hv-0"}, 403, "scope-forbidden"),
    "failing host": ("POST", "/v1/operations/fail", {"host": "hv-7"}, 404, "host-not-found"),
    "address": ("PATCH", "/v1/vms/web-0", ADDRESS, 409, "address-in-use"),
    "id": ("POST", "/v1/vms", {"name": "new", "scope": "web", "vm_id": DB_ID}, 409, "vm-id-in-use"),
    "figures": ("GET", "/metrics", None, 403, "forbidden"),
    "diagnosis": ("GET", "/v1/diagnosis?vm=db-0", None, 200, ""),
    "diagnosis of a bare name": ("GET", "/v1/diagnosis?vm=same", None, 200, ""),
    "history of an event": ("GET", f"/v1/journal?event={EVENT}", None, 200, ""),
    "whole history": ("GET", "/v1/journal", None, 200, ""),
    "hosts": ("GET", "/v1/hosts", None, 200, ""),
    "bare name that another scope also has": ("GET", "/v1/vms/same", None, 200, ""),
    "events of such a name": ("GET", "/v1/events?vm=same", None, 200, ""),
    "history of such a name": ("GET", "/v1/journal?vm=same", None, 200, ""),
    "restart of such a name": ("POST", "/v1/operations/restart", {"vm": "same"}, 201, ""),
    "deletion of such a name": ("POST", "/v1/operations/delete", {"vm": "same"}, 200, ""),
}


@pytest.mark.parametrize("case", ASKED)
async def test_responses_reveal_nothing_about_other_scopes(case: str) -> None:
    method, path, body, status, code = ASKED[case]
    async with run_api(fleet_file=FLEET) as service:
        event = await _event_elsewhere(service)
        token = await service.token("web-team", Role.OPERATOR, "web")
        reply = await service.request(method, path.replace(EVENT, event), body, token=token)
    assert (reply.status, reply.code if reply.status >= 400 else "") == (status, code)
    assert not [word for word in (b"hidden", b"third", b"10.0.0.5", b"ticket") if word in reply.body.lower()]


async def _event_elsewhere(service: RunningApi) -> str:
    made = await service.request("POST", "/v1/events", {"type": "Reboot", "vms": ["hidden/db-0"], "reason": "ticket"})
    id_: str = made.json["created"][0]["id"]
    return id_


async def test_names_are_ambiguous_only_among_visible_vms() -> None:
    async with run_api(fleet_file=FLEET) as service:
        token = await service.token("some", Role.VIEWER, "web", "third")
        reply = await service.request("GET", "/v1/vms/same", token=token)
    assert (reply.status, reply.json["error"]["details"]["candidates"]) == (409, ["web/same", "third/same"])


async def test_duplicate_address_is_reported_without_the_hidden_vm() -> None:
    async with run_api(fleet_file=FLEET) as service:
        token = await service.token("web-team", Role.OPERATOR, "web")
        reply = await service.request("PATCH", "/v1/vms/web-0", ADDRESS, token=token)
        admin = await service.request("PATCH", "/v1/vms/web-0", ADDRESS)
    error: dict[str, Any] = reply.json["error"]
    assert error["message"] == "address 10.0.0.4 in network n belongs to a VM of another scope"
    assert admin.json["error"]["details"]["vm"] == "hidden/db-0"


async def test_repeated_deletion_by_bare_name_deletes_once() -> None:
    """If the response is lost and the VM is gone, the repeated request must not delete another VM of that name."""
    async with run_api(fleet_file=FLEET) as service:
        token = await service.token("web-team", Role.OPERATOR, "web")
        replies = [
            await service.request("POST", "/v1/operations/delete", {"vm": "same"}, token=token, Idempotency_Key="k1")
            for _ in range(2)
        ]
        left = [vm["scope"] for vm in (await service.request("GET", "/v1/vms?name=same")).json["vms"]]
    assert [(reply.status, reply.json) for reply in replies] == [(200, {"created": [], "events": []})] * 2
    assert left == ["hidden", "third"]
