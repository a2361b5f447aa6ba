"""VM sockets: opened by the emulator for operators of the scope, not by a service for real VMs."""

from pathlib import Path

from forewarn.core.access import Role
from tests.operator.running_api import FakeGuests, run_api


class Opening:
    """Opens a socket for every VM except one."""

    async def open(self, vm: str) -> Path:
        if vm == "web/web-1":
            raise OSError(28, "No space left on device")
        return Path("/sockets") / vm.replace("/", "-")


def _opening() -> FakeGuests:
    guests = FakeGuests()
    guests.sockets = Opening()
    return guests


async def test_socket_is_returned_for_every_name_of_the_vm() -> None:
    async with run_api(guests=_opening()) as service:
        for name in ("web-0", "web/web-0"):
            answer = await service.request("POST", "/v1/sockets", {"vm": name})
            assert answer.status == 200
            assert answer.json == {"scope": "web", "vm": "web-0", "path": "/sockets/web-web-0"}


async def test_service_for_real_vms_opens_no_sockets() -> None:
    async with run_api() as service:
        answer = await service.request("POST", "/v1/sockets", {"vm": "web-0"})
    assert (answer.status, answer.json["error"]["code"]) == (409, "emulator-only")


async def test_failed_socket_is_reported() -> None:
    async with run_api(guests=_opening()) as service:
        answer = await service.request("POST", "/v1/sockets", {"vm": "web-1"})
    assert (answer.status, answer.json["error"]["code"]) == (503, "socket-unavailable")
    assert answer.json["error"]["message"] == "cannot open a socket for VM web/web-1: No space left on device"


async def test_socket_of_another_scope_is_not_opened() -> None:
    async with run_api(guests=_opening()) as service:
        token = await service.token("web", Role.OPERATOR, "web")
        answer = await service.request("POST", "/v1/sockets", {"vm": "db-0/db-0"}, token=token)
        unknown = await service.request("POST", "/v1/sockets", {"vm": "nothing"})
    assert (answer.status, answer.json["error"]["code"]) == (403, "scope-forbidden")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "vm-not-found")
