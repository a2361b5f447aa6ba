"""The host registry: one process serves a host at a time, and silent hosts are known."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.policy import HostState
from forewarn.fleet.errors import HostNotFound, HostRunning, HostTaken, HostUnheard
from forewarn.fleet.host import registry as module
from forewarn.fleet.host.registry import HostRecord, HostRegistry, digest_scopes
from forewarn.fleet.service import Fleet
from tests.core.sample_scopes import scope, vm
from tests.fleet.fleets import run_fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with run_fleet(scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))) as running:
        yield running


@pytest.fixture
def hosts(fleet: Fleet) -> HostRegistry:
    return fleet.cluster.hosts


async def test_same_process_keeps_its_term(hosts: HostRegistry) -> None:
    first = await hosts.claim("hv-0", "a", "process 1", {})
    assert (first.term, first.scopes) == (1, ("web",))
    assert (await hosts.claim("hv-0", "a", "process 1", {})).term == 1


async def test_other_process_waits_until_the_first_one_is_silent(
    hosts: HostRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hosts.claim("hv-0", "a", "process 1", {})
    with pytest.raises(HostTaken) as refused:
        await hosts.claim("hv-0", "b", "process 2", {})
    assert refused.value.details == {"host": "hv-0", "holder": "process 1"}
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.0)
    assert (await hosts.claim("hv-0", "b", "process 2", {})).term == 2
    with pytest.raises(HostTaken):
        await hosts.check_term("hv-0", "a", 1)
    assert await hosts.check_term("hv-0", "b", 2) == ("hv-0", 2)


async def test_control_node_that_has_not_listened_long_enough_grants_no_take_over(fleet: Fleet) -> None:
    await fleet.cluster.hosts.claim("hv-0", "a", "process 1", {})
    fleet.cluster.hosts._heard.clear()
    with pytest.raises(HostTaken):
        await fleet.cluster.hosts.claim("hv-0", "b", "process 2", {})


async def test_released_host_is_taken_at_once(hosts: HostRegistry) -> None:
    await hosts.claim("hv-0", "a", "process 1", {})
    await hosts.release("hv-0", "other")
    with pytest.raises(HostTaken):
        await hosts.claim("hv-0", "b", "process 2", {})
    await hosts.release("hv-0", "a")
    assert (await hosts.claim("hv-0", "b", "process 2", {})).term == 2


async def test_ports_of_removed_vms_are_forgotten(fleet: Fleet, hosts: HostRegistry) -> None:
    await hosts.claim("hv-0", "a", "process 1", {"gone/x": 20_000})
    await hosts.assign_ports("hv-0", "a", "127.0.0.1", {"web/web-0": 20_001})
    web_0, web_1 = fleet.replica.scope("web").roster
    assert hosts.record("hv-0") == HostRecord(
        term=1, process="a", holder="process 1", address="127.0.0.1", ports={"web/web-0": 20_001}
    )
    assert (hosts.url("web", web_0), hosts.url("web", web_1)) == ("http://127.0.0.1:20001", None)
    with pytest.raises(HostTaken):
        await hosts.assign_ports("hv-0", "b", "127.0.0.1", {})


async def test_host_that_is_running_cannot_be_given_up(hosts: HostRegistry) -> None:
    with pytest.raises(HostNotFound):
        await hosts.abandon("hv-0", by="ann", why="fire")
    await hosts.claim("hv-0", "a", "process 1", {})
    with pytest.raises(HostRunning):
        await hosts.abandon("hv-0", by="ann", why="fire")
    await hosts.release("hv-0", "a")
    assert await hosts.abandon("hv-0", by="ann", why="fire") == 0
    with pytest.raises(HostTaken):
        await hosts.check_term("hv-0", "a", 1)


async def test_control_node_that_has_not_listened_long_enough_gives_up_no_host(
    hosts: HostRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hosts.claim("hv-0", "a", "process 1", {})
    hosts._heard.clear()
    with pytest.raises(HostUnheard):
        await hosts.abandon("hv-0", by="ann", why="fire")
    watching = asyncio.create_task(hosts.watch_silence())
    await asyncio.sleep(0)
    with pytest.raises(HostUnheard):
        await hosts.abandon("hv-0", by="ann", why="fire")
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    assert await hosts.abandon("hv-0", by="ann", why="fire") == 0
    watching.cancel()


async def test_host_is_given_up_only_with_a_reason(hosts: HostRegistry) -> None:
    await hosts.claim("hv-0", "a", "process 1", {})
    await hosts.release("hv-0", "a")
    with pytest.raises(Invalid):
        await hosts.abandon("hv-0", by="ann", why=" ")
    record = hosts.record("hv-0")
    assert record is not None
    assert record.term == 1


async def test_replaced_process_does_not_hide_the_one_that_serves_the_host(
    hosts: HostRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hosts.claim("hv-0", "a", "process 1", {})
    hosts.hear("hv-0", "stale")
    assert hosts.heard_ago("hv-0") is not None
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.0)
    hosts.hear("hv-0", "b")  # another control node has let it take over, and the record comes later
    assert hosts._heard["hv-0"][0] == "b"


async def test_rules_know_which_hosts_are_silent(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.001)
    assert fleet.scopes.rule_context.hosts is None
    watching = asyncio.create_task(fleet.cluster.hosts.watch_silence())
    await fleet.cluster.hosts.claim("hv-0", "a", "process 1", {})

    async def reach(state: HostState | None, *, silent: bool = False) -> HostState:
        async with asyncio.timeout(30):
            while True:
                found = (fleet.scopes.rule_context.hosts or {}).get("hv-0")
                if found is not None and (found == state or (silent and found.silent_since is not None)):
                    return found
                await asyncio.sleep(0.001)

    await reach(HostState())
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    since = await reach(None, silent=True)
    assert fleet.cluster.hosts.silent() == {"hv-0": since}
    fleet.replica.view("web").seen_at = fleet.clock.now() - timedelta(days=2)
    monkeypatch.setattr(module, "SILENT_SECONDS", 60.0)
    await reach(HostState())
    assert fleet.cluster.hosts.silent() == {}
    assert fleet.replica.view("web").alive_at == fleet.clock.now(), "its VMs may have polled all the time"
    fleet.cluster.hosts._heard.clear()
    await reach(HostState(is_unheard=True))
    watching.cancel()


async def test_polls_are_known_when_hosts_have_had_the_time_to_report(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [fleet.cluster.hosts.knows_polls]  # outside a cluster, the VMs poll this process
    watching = asyncio.create_task(fleet.cluster.hosts.watch_silence())
    await asyncio.sleep(0)
    found.append(fleet.cluster.hosts.knows_polls)
    monkeypatch.setattr(module, "FIRST_REPORT_SECONDS", 0.0)
    found.append(fleet.cluster.hosts.knows_polls)
    watching.cancel()
    assert found == [True, False, True]


def test_digest_depends_on_every_scope() -> None:
    assert digest_scopes(("a", "b")) != digest_scopes(("a",)) != digest_scopes(())
    assert digest_scopes(("a", "b")) == digest_scopes(("a", "b"))
