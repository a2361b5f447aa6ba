"""Scopes and VMs are added, changed and removed; an address belongs to one VM, even with concurrent requests."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from forewarn.core.errors import Invalid, ResourceExists, ResourceInUse, ScopeVmNotFound
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ApprovalRule
from forewarn.core.vm import Address, Priority, Traits, Vm
from forewarn.fleet.errors import AddressInUse, HostNotFound, ScopeNotFound, VmNotFound
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import schedule_request, scope, vm, web_scope
from tests.fleet.fleets import read_journal, run_fleet


def addressed(old: Vm, *ips: str) -> Vm:
    return msgspec.structs.replace(old, addresses=tuple(Address(ip=ip) for ip in ips))


async def test_vm_is_added_changed_and_removed_with_journal_entries() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.inventory.add_vm("web", vm("web-9", ip="10.0.0.9"), by="ann")
        assert fleet.replica.find_by_address("default", "10.0.0.9") == fleet.replica.find("web/web-9")
        await fleet.inventory.change_vm(
            "web", "WEB-9", lambda old: msgspec.structs.replace(addressed(old, "10.0.0.10"), fault_domain=2), by="bob"
        )
        assert fleet.replica.find_by_address("default", "10.0.0.9") is None
        await fleet.inventory.remove_vm("web", "web-9", by="eve", why="sold")
        with pytest.raises(VmNotFound):
            fleet.replica.find("web-9")
        entries = [row.entry for row in await read_journal(store, RecordKey(RecordKind.SCOPE, "web"))]
        assert [(each.kind, each.by, each.why, each.facts) for each in entries[1:]] == [
            (EntryKind.VM_ADDED, "ann", "", {}),
            (EntryKind.VM_CHANGED, "bob", "", {"fields": "fault_domain, addresses"}),
            (EntryKind.VM_REMOVED, "eve", "sold", {}),
        ]


async def test_scope_is_changed_and_removed() -> None:
    async with run_fleet(web_scope()) as fleet:
        low = Traits(priority=Priority.LOW)
        await fleet.inventory.change_scope("web", by="ann", traits=lambda _: low, approval=ApprovalRule.ALL)
        changed = fleet.replica.scope("web")
        assert (changed.traits, changed.approval, changed.auto_approve) == (low, ApprovalRule.ALL, ())
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        with pytest.raises(ResourceInUse):
            await fleet.inventory.remove_scope("web", by="ann")
        await fleet.inventory.remove_scope("web", by="ann", force=True)
        assert (list(fleet.replica.views()), dict(fleet.replica.hosts()), fleet.replica.vms) == ([], {}, 0)
        with pytest.raises(ScopeNotFound):
            await fleet.inventory.change_scope("web", by="ann", approval=ApprovalRule.ANY)


async def test_one_of_concurrent_requests_gets_an_address() -> None:
    async with run_fleet(web_scope(), scope("other", vm("o-0"))) as fleet:
        wishes = await asyncio.gather(
            fleet.inventory.add_vm("web", vm("a", ip="10.9.9.9"), by="ann"),
            fleet.inventory.add_vm("other", vm("b", ip="10.9.9.9"), by="ann"),
            fleet.inventory.add_scope(scope("new", vm("c", ip="10.9.9.9")), by="ann"),
            fleet.inventory.change_vm("web", "web-0", lambda old: addressed(old, "10.9.9.9"), by="ann"),
            fleet.inventory.change_vm("other", "o-0", lambda old: addressed(old, "10.9.9.9"), by="ann"),
            return_exceptions=True,
        )
        assert [type(each) for each in wishes] == [type(None), *[AddressInUse] * 4]
        assert len(fleet.replica.claims("default", "10.9.9.9")) == 1
        await fleet.inventory.change_vm("web", "a", addressed, by="ann")
        await fleet.inventory.add_vm("other", vm("b", ip="10.9.9.9"), by="ann")


async def test_address_of_another_vm_of_the_same_scope_is_taken_too() -> None:
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(AddressInUse, match="belongs to web/web-0"):
            await fleet.inventory.add_vm("web", vm("web-9", ip="10.0.0.1"), by="ann")
        with pytest.raises(AddressInUse):
            await fleet.inventory.change_vm("web", "web-1", lambda old: addressed(old, "10.0.0.1"), by="ann")
        with pytest.raises(AddressInUse):
            await fleet.inventory.add_scope(scope("new", vm("a", ip="10.5.0.1"), vm("b", ip="10.5.0.1")), by="ann")


async def test_refused_claim_leaves_the_address_free() -> None:
    async with run_fleet(web_scope(), scope("other", vm("o-0"))) as fleet:
        with pytest.raises(ResourceExists):
            await fleet.inventory.add_vm("web", vm("web-0", ip="10.9.9.9"), by="ann")
        with pytest.raises(ScopeVmNotFound):
            await fleet.inventory.change_vm("web", "nobody", lambda old: old, by="ann")
        await fleet.inventory.add_vm("other", vm("b", ip="10.9.9.9"), by="ann")


async def test_concurrent_changes_of_one_vm_are_all_kept() -> None:
    """Each is made of what the one before has left, addresses too."""

    def one_more(ip: str) -> Callable[[Vm], Vm]:
        return lambda old: msgspec.structs.replace(old, addresses=(*old.addresses, Address(ip=ip)))

    async with run_fleet(web_scope()) as fleet:
        await asyncio.gather(
            *(fleet.inventory.change_vm("web", "web-0", one_more(f"10.9.9.{n}"), by="ann") for n in range(5))
        )
        ips = [address.ip for address in fleet.replica.scope("web").vm("web-0").addresses]
        assert ips == ["10.0.0.1", *(f"10.9.9.{n}" for n in range(5))]


SELECTED = {
    "by name": ({"vms": ("web-0", "web/WEB-0", "db/db")}, ("web/web-0", "db/db")),
    "by host, over scopes": ({"host": "hv-0"}, ("web/web-0", "web/web-3", "db/db")),
    "by host and scope": ({"host": "hv-0", "scope": "db"}, ("db/db",)),
    "by scope": ({"scope": "db"}, ("db/db",)),
    "by update domain": ({"scope": "web", "update_domain": 2}, ("web/web-2", "web/web-5")),
}


@pytest.mark.parametrize(("asked", "found"), SELECTED.values(), ids=SELECTED)
async def test_vms_are_selected(asked: dict[str, object], found: tuple[str, ...]) -> None:
    async with selectable() as fleet:
        assert fleet.inventory.select(**asked) == found  # type: ignore[arg-type]  # as the table says


def selectable() -> AbstractAsyncContextManager[Fleet]:
    return run_fleet(web_scope(), scope("db", vm("db", host="hv-0")), scope("empty"))


REFUSED: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "nothing": ({}, Invalid, "specify VMs, a host or a scope"),
    "names and a host": ({"vms": ("web-0",), "host": "hv-0"}, Invalid, "not both"),
    "update domain of no scope": ({"update_domain": 1}, Invalid, "the scope of the update domain"),
    "update domain of a host": ({"host": "hv-0", "update_domain": 1}, Invalid, "specify the scope, too"),
    "unknown VM": ({"vms": ("nobody",)}, VmNotFound, "there is no VM nobody"),
    "unknown host": ({"host": "hv-77"}, HostNotFound, "no VM is on a host hv-77"),
    "unknown scope": ({"scope": "nowhere"}, ScopeNotFound, "there is no scope nowhere"),
    "scope without VMs": ({"scope": "empty"}, Invalid, "there is no VM in scope empty"),
    "update domain without VMs": ({"scope": "web", "update_domain": 9}, Invalid, "scope web, update domain 9"),
    "host without VMs of the scope": ({"host": "hv-1", "scope": "db"}, Invalid, "scope db, host hv-1"),
}


@pytest.mark.parametrize(("asked", "error", "says"), REFUSED.values(), ids=REFUSED)
async def test_invalid_selection_is_refused(asked: dict[str, object], error: type[Exception], says: str) -> None:
    async with selectable() as fleet:
        with pytest.raises(error, match=says):
            fleet.inventory.select(**asked)  # type: ignore[arg-type]  # as the table says


async def test_hosts_are_those_of_existing_vms() -> None:
    async with selectable() as fleet:
        assert {host: len(vms) for host, vms in fleet.replica.hosts().items()} == {"hv-0": 3, "hv-1": 2, "hv-2": 2}
        await fleet.inventory.change_vm("db", "db", lambda old: msgspec.structs.replace(old, host="hv-7"), by="ann")
        assert [each.name for _, each in fleet.replica.hosts()["hv-7"]] == ["db"]
        await fleet.inventory.remove_vm("db", "db", by="ann")
        assert "hv-7" not in fleet.replica.hosts()
        assert len(fleet.replica.hosts()) == 3


async def seen(fleet: Fleet) -> None:
    noted = fleet.last_seen.record_request(fleet.replica.view("web"))
    if noted is not None:
        await noted


async def test_last_request_of_a_scope_is_known_also_after_a_restart() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        assert fleet.last_seen.of(fleet.replica.view("web")) is None
        await seen(fleet)
        first = fleet.clock.now()
        assert fleet.last_seen.of(fleet.replica.view("web")) == first
    async with run_fleet(store=store) as fleet:
        assert fleet.last_seen.of(fleet.replica.view("web")) == first
