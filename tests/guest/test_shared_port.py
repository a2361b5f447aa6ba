"""The shared port: the path of each request names the VM, and only existing, unambiguous VMs are served."""

import json

import pytest

from forewarn.guest.limits import Limits
from forewarn.guest.shared_port import vm_path
from tests.core.sample_scopes import scope, vm
from tests.guest.running_endpoint import EMPTY, EVENTS, RunningEndpoint, approval, reboot, request, run_endpoint

NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


async def shared_port(endpoint: RunningEndpoint) -> int:
    return await endpoint.server.listen_for_all("127.0.0.1", 0)


@pytest.mark.parametrize(
    "prefix",
    ["/vm/web-0", "/vm/web/web-0", "/VM/WEB-0", "http://forewarn:8180/vm/web-0"],
    ids=["name", "scope and name", "upper case", "as to a proxy"],
)
async def test_path_names_the_vm(prefix: str) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        assert (await peer.get(target=prefix + EVENTS)).body == EMPTY
        assert (await peer.get(target=prefix + NAME)).body == b"web-0"


async def test_approval_is_that_of_the_named_vm() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        event = await reboot(endpoint)
        assert (await peer.post(approval(event), target=f"/vm/web-0{EVENTS}")).status == 200
        (shown,) = (await peer.get(target=f"/vm/web-0{EVENTS}")).document["Events"]
        assert (shown["EventId"], shown["EventStatus"]) == (event, "Started")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (EVENTS, "begin the path with the VM"),
        ("/", "begin the path with the VM"),
        (f"/vm/nothing{EVENTS}", "nothing"),
        (f"/vm/nowhere/web-0{EVENTS}", "nowhere"),
    ],
    ids=["no VM", "root", "unknown VM", "unknown scope"],
)
async def test_request_without_an_existing_vm_is_not_found(target: str, words: str) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        refused = await peer.get(target=target)
        assert refused.status == 404
        assert words in json.loads(refused.body)["error"]
        assert (await peer.get(target=f"/vm/web-0{EVENTS}")).status == 200, "the connection stays usable"


async def test_ambiguous_name_needs_its_scope() -> None:
    scopes = (scope("a", vm("same")), scope("b", vm("same")))
    async with run_endpoint(*scopes) as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        refused = await peer.get(target=f"/vm/same{EVENTS}")
        assert (refused.status, b"a/same" in refused.body) == (404, True)
        assert (await peer.get(target=f"/vm/b/same{EVENTS}")).status == 200
        assert vm_path(endpoint.fleet.replica, "a", "same") == "/vm/a/same"


async def test_vm_named_metadata_can_be_named() -> None:
    async with run_endpoint(scope("a", vm("metadata"))) as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        for prefix in ("/vm/metadata", "/vm/a/metadata"):
            assert (await peer.get(target=prefix + NAME)).body == b"metadata"


async def test_listeners_do_not_share_the_meaning_of_bytes() -> None:
    """A request that a VM's own port has cached names no VM on the shared port, and the other way round."""
    async with run_endpoint() as endpoint:
        own, shared = await endpoint.connect(), await endpoint.connect_to(await shared_port(endpoint))
        for _ in range(2):
            assert (await own.get()).status == 200
            assert (await shared.get()).status == 404
            assert (await shared.get(target=f"/vm/web-1{EVENTS}")).status == 200
            assert (await own.get(target=f"/vm/web-1{EVENTS}")).status == 404


async def test_removed_vm_is_not_served_any_more() -> None:
    async with run_endpoint(scope("a", vm("a-0"), vm("a-1"))) as endpoint:
        peer = await endpoint.connect_to(await shared_port(endpoint))
        assert (await peer.get(target=f"/vm/a-0{EVENTS}")).status == 200
        await endpoint.change_roster("a", [vm("a-1")])
        assert (await peer.get(target=f"/vm/a-0{EVENTS}")).status == 403
        assert (await peer.request(request(target=f"/vm/a-1{EVENTS}"))).status == 200


async def test_requests_count_for_the_named_vm() -> None:
    async with run_endpoint(limits=Limits(requests_per_second=2)) as endpoint:
        own, shared = await endpoint.connect(), await endpoint.connect_to(await shared_port(endpoint))
        endpoint.stop_ticks()
        assert [(await own.get()).status, (await shared.get(target=f"/vm/web-0{EVENTS}")).status] == [200, 200]
        assert [(await own.get()).status, (await shared.get(target=f"/vm/web-0{EVENTS}")).status] == [429, 429]
        assert (await shared.get(target=f"/vm/web-1{EVENTS}")).status == 200
