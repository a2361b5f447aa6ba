"""Caller identity: a VM sees its own scope, and an unknown caller sees nothing."""

import asyncio
import random
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION, AnnouncePolicy
from forewarn.core.scope import Scope
from forewarn.core.vm import Address
from forewarn.fleet.errors import AmbiguousVm, ScopeNotFound, VmNotFound
from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.identity import AddressResolver
from forewarn.wire.error_responses import ErrorReason
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, Peer, RunningEndpoint, approval, request, run_endpoint

NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
ANNOUNCING = msgspec.structs.replace(PRODUCTION, announce=AnnouncePolicy.ALWAYS)


async def by_address(endpoint: RunningEndpoint, network: str = "default") -> int:
    port = await endpoint.server.listen_by_address(network, "127.0.0.1", 0)
    endpoint.stop_ticks()
    return port


async def test_callers_are_identified_by_source_address() -> None:
    """Each VM gets its own name and the events of its own scope."""
    scopes = [scope(f"s{n}", vm(f"v{n}", ip=f"127.0.1.{n}")) for n in range(1, 6)]
    async with run_endpoint(*scopes) as endpoint:
        port = await by_address(endpoint)
        for n in range(1, 6):
            await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, f"s{n}/v{n}", number=n))
        for n in range(1, 6):
            peer = await endpoint.connect_to(port, f"127.0.1.{n}")
            assert (await peer.get(target=NAME)).body == f"v{n}".encode()
            (event,) = (await peer.request()).document["Events"]
            assert event["Resources"] == [f"v{n}"]


async def test_unknown_address_is_403_and_counted() -> None:
    """This is checked first, and the body has the reason. Once the inventory has the address, it is served."""
    async with run_endpoint() as endpoint:
        port = await by_address(endpoint)
        peer = await endpoint.connect_to(port, "127.0.9.9")
        for raw in (GET, request("GET", "/nowhere"), request(metadata=False), request("POST", body=approval())):
            answer = await peer.request(raw)
            assert answer.status == 403
            assert "belongs to no known VM" in answer.document["error"]
        assert endpoint.counters.refusals[ErrorReason.UNKNOWN_CALLER] == 4
        await endpoint.fleet.inventory.add_scope(scope("new", vm("new-0", ip="127.0.9.9")), by="test")
        assert (await peer.get(target=NAME)).body == b"new-0"


async def test_delayed_approval_belongs_to_the_current_owner_of_the_address() -> None:
    """A VM that has lost its address cannot approve in its former scope."""
    scopes = scope("web", vm("web-0", ip="127.0.1.1")), scope("db", vm("db-0"))
    async with run_endpoint(*scopes, policy=ANNOUNCING, enable_delay=timedelta(hours=1)) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect_to(await by_address(endpoint), "127.0.1.1")
        peer.send(request("POST", body=approval(event)))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        await endpoint.change_roster("web", [vm("web-0")])
        await endpoint.change_roster("db", [vm("db-0", ip="127.0.1.1")])
        endpoint.server._state.enable_delay.close()
        assert (await peer.read_response()).status == 400
        assert endpoint.fleet.events.find(event)[1].approvals == ()


async def test_address_of_another_network_is_unknown() -> None:
    """Addresses are unique only within a network."""
    one = scope("one", vm("v", ip="127.0.0.7", network="red"))
    other = scope("other", vm("v", ip="127.0.0.7", network="blue"))
    async with run_endpoint(one, other) as endpoint:
        for network, expected in (("red", b"one"), ("blue", b"other")):
            port = await by_address(endpoint, network)
            peer = await endpoint.connect_to(port, "127.0.0.7")
            await endpoint.fleet.events.schedule(
                schedule_request(EventType.REBOOT, f"{expected.decode()}/v", number=len(expected))
            )
            assert (await peer.request()).document["DocumentIncarnation"] == 2
        assert (
            await (await endpoint.connect_to(await by_address(endpoint, "green"), "127.0.0.7")).request()
        ).status == 403


async def test_address_claimed_by_two_vms_serves_neither() -> None:
    """From the second claim until one VM gives the address up, with its own error text and counter."""
    async with run_endpoint(scope("a", vm("a0", ip="127.0.2.1")), scope("b", vm("b0", ip="127.0.2.2"))) as endpoint:
        port = await by_address(endpoint)
        peer = await endpoint.connect_to(port, "127.0.2.1")
        assert [(await peer.request()).status for _ in range(3)] == [200] * 3
        await endpoint.change_roster("b", [vm("b0", ip="127.0.2.1")])
        answer = await peer.request()
        assert answer.status == 403
        assert "more than one VM claims" in answer.document["error"]
        assert endpoint.counters.ambiguous_callers == 1
        await endpoint.change_roster("a", [vm("a0", ip="127.0.2.3")])
        assert (await peer.get(target=NAME)).body == b"b0"
        await endpoint.change_roster("b", [vm("b0", ip="127.0.2.1"), vm("b1", ip="127.0.2.1")])
        assert (await peer.request()).status == 403
        assert endpoint.counters.ambiguous_callers == 2


async def test_vm_with_a_changed_address_is_identified_only_by_the_new_one() -> None:
    """Also on open connections, and between VMs of one scope."""
    async with run_endpoint(scope("a", vm("a0", ip="127.0.2.1"), vm("a1", ip="127.0.2.2"))) as endpoint:
        port = await by_address(endpoint)
        first, second = [await endpoint.connect_to(port, f"127.0.2.{n}") for n in (1, 2)]
        names = [(await peer.get(target=NAME)).body for peer in (first, second)]
        assert names == [b"a0", b"a1"]
        await endpoint.change_roster("a", [vm("a0", ip="127.0.2.2"), vm("a1", ip="127.0.2.1")])
        names = [(await peer.get(target=NAME)).body for peer in (first, second)]
        assert names == [b"a1", b"a0"]
        await endpoint.change_roster("a", [vm("a0", ip="127.0.2.2")])
        assert (await first.request()).status == 403
        assert (await second.request()).status == 200


@pytest.mark.parametrize("fast", [True, False], ids=["cached request", "new request"])
async def test_removed_vm_is_403(fast: bool) -> None:
    """Immediately, on its open connection; if it is added again, it is served again."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect("web/web-1")
        assert (await peer.request()).status == 200
        await endpoint.change_roster("web", [vm("web-0")])
        asked = GET if fast else request("GET", EVENTS, ("Another", "header"))
        answer = await peer.request(asked)
        assert answer.status == 403
        assert "there is no VM web/web-1 any more" in answer.document["error"]
        assert (await (await endpoint.connect("web/web-0")).request()).status == 200
        await endpoint.change_roster("web", [vm("web-0"), vm("web-1")])
        assert (await peer.request(asked)).status == 200


async def test_vms_of_a_removed_scope_are_403() -> None:
    """They are served again in a new scope of the same name."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.request()).status == 200
        await endpoint.fleet.scopes.apply("web", lambda _: Change(None, (), None))
        assert [(await peer.request()).status for _ in range(2)] == [403, 403]
        assert (await peer.post(approval())).status == 403
        await endpoint.fleet.inventory.add_scope(
            msgspec.structs.replace(scope("web", vm("web-0")), epoch="e2"), by="test"
        )
        assert (await peer.request()).headers["etag"] == '"e2.1.2020-07-01"'


async def test_preempted_vm_is_403_after_its_event() -> None:
    """The rules themselves remove it from its scope."""
    async with run_endpoint(scope("batch", vm("batch_0"), vm("batch_1"), low_priority=True)) as endpoint:
        peer = await endpoint.connect("batch/batch_0")
        await endpoint.fleet.events.schedule(schedule_request(EventType.PREEMPT, "batch/batch_0", notice=timedelta(0)))
        await endpoint.fleet.time.advance(timedelta(minutes=1))
        assert (await peer.request()).status == 403
        assert (await (await endpoint.connect("batch/batch_1")).request()).status == 200


async def test_listener_needs_an_existing_vm() -> None:
    """A bare name is accepted if it is unambiguous."""
    async with run_endpoint(scope("a", vm("same"), vm("one")), scope("b", vm("same"))) as endpoint:
        for name, error in (("a/none", VmNotFound), ("none/same", ScopeNotFound), ("same", AmbiguousVm)):
            with pytest.raises(error):
                await endpoint.server.listen_for_vm(name, "127.0.0.1", 0)
        peer = await endpoint.connect("one")
        assert (await peer.request()).status == 200


@pytest.mark.parametrize(
    ("peer", "written"),
    [
        (("10.0.0.1", 80), "10.0.0.1"),
        (("::ffff:10.0.0.1", 80, 0, 0), "10.0.0.1"),
        (("2001:DB8:0::1", 80, 0, 0), "2001:db8::1"),
        (("fe80::1%eth0", 80, 0, 2), "fe80::1"),
        ("", ""),
        (None, ""),
    ],
)
async def test_addresses_are_normalized_as_in_the_inventory(peer: object, written: str) -> None:
    """IPv4 on a dual-stack listener, IPv6 in its canonical form."""
    async with run_endpoint() as endpoint:
        assert AddressResolver(endpoint.fleet.replica, "default").address(peer) == written


async def test_limits_follow_the_vm_and_not_the_address() -> None:
    """A VM with several addresses has one rate counter."""
    two = msgspec.structs.replace(vm("v"), addresses=(Address(ip="127.0.3.1"), Address(ip="127.0.3.2")))
    async with run_endpoint(scope("a", two)) as endpoint:
        port = await by_address(endpoint)
        peers = [await endpoint.connect_to(port, f"127.0.3.{n}") for n in (1, 2, 1)]
        await asyncio.gather(*(peer.request() for peer in peers))
        tallies = {id(connection._session.peer.counter) for connection in endpoint.connections()}
        assert len(tallies) == 1
        assert endpoint.connections()[0]._session.peer.counter.connections == 3


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
async def test_responses_never_contain_data_of_another_scope(seed: int) -> None:
    """Random changes of inventory and events between random requests; the seed is in the test's name."""
    chance = random.Random(seed)
    async with run_endpoint(*(crowd(n, range(3)) for n in range(4))) as endpoint:
        port = await by_address(endpoint)
        peers = {(n, m): await endpoint.connect_to(port, ip(n, m)) for n in range(4) for m in range(3)}
        for step in range(150):
            await disturb(endpoint, chance, step)
            (n, m), peer = chance.choice(sorted(peers.items()))
            await check(endpoint, peer, ip(n, m), chance)
            if chance.random() < 0.05:
                await peer.close()
                peers[n, m] = await endpoint.connect_to(port, ip(n, m))


def ip(n: int, m: int) -> str:
    return f"127.1.{n}.{m + 1}"


def crowd(n: int, members: range) -> Scope:
    return scope(f"scope{n}", *(vm(f"scope{n}-vm{m}", domain=m, ip=ip(n, m)) for m in members))


async def disturb(endpoint: RunningEndpoint, chance: random.Random, step: int) -> None:
    """Schedule an event, or swap addresses of VMs, or remove and add VMs."""
    n = chance.randrange(4)
    names = [f"scope{n}/{vm_.name}" for vm_ in endpoint.fleet.replica.scope(f"scope{n}").roster]
    if chance.random() < 0.5 and names:
        await endpoint.fleet.events.schedule(schedule_request(EventType.FREEZE, chance.choice(names), number=step + 1))
    elif chance.random() < 0.5:
        await endpoint.fleet.time.advance(timedelta(minutes=chance.randrange(30)))
    else:
        named = {name for event in endpoint.fleet.replica.scope(f"scope{n}").events for name in event.vms}
        kept = [m for m in range(3) if chance.random() < 0.8 or f"scope{n}-vm{m}" in named]
        vms = [vm(f"scope{n}-vm{m}", domain=m, ip=ip(chance.randrange(4), chance.randrange(3))) for m in kept]
        await endpoint.change_roster(f"scope{n}", vms)


async def check(endpoint: RunningEndpoint, peer: Peer, address: str, chance: random.Random) -> None:
    """Compare the response with the replica's scope of that address."""
    answer = await peer.request(
        chance.choice([GET, request("GET", EVENTS, ("X", str(chance.random()))), request("GET", NAME)])
    )
    claims = endpoint.fleet.replica.claims("default", address)
    if len(claims) != 1:
        assert answer.status == 403
        assert b"scope" not in answer.body
        return
    ((view, found),) = claims
    assert answer.status == 200
    if answer.headers["content-type"].startswith("text/plain"):
        assert answer.body == found.name.encode()
        return
    shown = {name for event in answer.document["Events"] for name in event["Resources"]}
    assert all(name.startswith(f"{view.id}-") for name in shown)
    assert view.scope is not None
    assert answer.document["DocumentIncarnation"] == view.scope.incarnation
