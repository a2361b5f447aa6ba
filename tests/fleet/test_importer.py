"""Import of a fleet file: differences are reported, then applied VM by VM, and refused changes have a reason."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import VM_ID, Roster, Traits, Vm
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.importer import (
    IMPORT_CONCURRENCY,
    Comparison,
    Difference,
    apply_import,
    compare_fleet,
    run_in_batches,
)
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import schedule_request, scope, vm, web_scope
from tests.fleet.fleets import CallbackObserver, FailingStore, read_journal, run_fleet

HOUR = timedelta(hours=1)


def with_vms(value: Scope, *vms: Vm) -> Scope:
    """Return the scope with other VMs."""
    return msgspec.structs.replace(value, roster=Roster(vms))


class Told:
    """Everything that a comparison or an import has reported."""

    def __init__(self) -> None:
        self.differences: list[Difference] = []

    @property
    def refused(self) -> list[Difference]:
        """What is not done."""
        return [one for one in self.differences if one.refused]

    def those(self, what: str, *, of_vms: bool) -> list[Difference]:
        """What was added, changed or removed, of scopes or of VMs."""
        return [one for one in self.differences if one.what == what and (one.vm is not None) is of_vms]


async def compared(fleet: Fleet, *wanted: Scope, prune: bool = False) -> tuple[Comparison, Told]:
    """Compare; check that the result is the same without a receiver of differences."""
    told = Told()
    comparison = await compare_fleet(fleet.replica, wanted, prune=prune, report=told.differences.extend)
    assert await compare_fleet(fleet.replica, wanted, prune=prune) == comparison
    return comparison, told


async def applied(fleet: Fleet, comparison: Comparison) -> Told:
    """Make it so."""
    told = Told()
    await apply_import(fleet, comparison, by="ann", on_progress=lambda *_: None, report=told.differences.extend)
    return told


async def imported(fleet: Fleet, *wanted: Scope, prune: bool = False) -> Told:
    """Import, and check that another import would find nothing but what was refused."""
    comparison, _ = await compared(fleet, *wanted, prune=prune)
    done = await applied(fleet, comparison)
    _, again = await compared(fleet, *wanted, prune=prune)
    assert {(one.scope, one.vm) for one in again.differences} == {(one.scope, one.vm) for one in done.refused}
    return done


def brief(differences: Sequence[Difference]) -> list[tuple[str, str, str | None]]:
    return [(one.what, one.scope, one.vm) for one in differences]


def addresses(fleet: Fleet) -> dict[str, list[str]]:
    """Return the addresses of all VMs."""
    return {
        f"{view.id}/{each.name}": [address.ip for address in each.addresses]
        for view in fleet.replica.views()
        for each in view.roster or ()
    }


async def test_comparison_has_old_and_new_value_of_each_field_and_changes_nothing() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), scope("old", vm("old-0")), store=store) as fleet:
        before = await read_journal(store)
        first, second, *others = web_scope().roster
        changed = msgspec.structs.replace(
            first, host="hv-9", traits=Traits(tags={"team": "a"}, terminate_notice=timedelta(minutes=7))
        )
        wanted = msgspec.structs.replace(
            with_vms(web_scope(), changed, *others, vm("web-9")), approval=ApprovalRule.ALL
        )
        comparison, told = await compared(fleet, wanted, scope("new", vm("n")), prune=True)
        assert told.those("changed", of_vms=False) == [
            Difference(what="changed", scope="web", fields={"approval": ("any", "all")})
        ]
        assert told.those("changed", of_vms=True) == [
            Difference(
                what="changed",
                scope="web",
                vm="web-0",
                fields={"host": ("hv-0", "hv-9"), "terminate_notice": ("", "7m"), "tags": ("", "team=a")},
            ),
        ]
        assert brief(told.those("added", of_vms=True)) == [("added", "web", "web-9"), ("added", "new", "n")]
        assert brief(told.those("added", of_vms=False)) == [("added", "new", None)]
        assert brief(told.those("removed", of_vms=True)) == [
            ("removed", "web", second.name),
            ("removed", "old", "old-0"),
        ]
        assert brief(told.those("removed", of_vms=False)) == [("removed", "old", None)]
        assert (comparison.unchanged, told.refused) == (4, [])
        assert await read_journal(store) == before


async def test_scopes_and_vms_missing_in_the_file_stay_without_prune() -> None:
    async with run_fleet(web_scope(), scope("old", vm("old-0"))) as fleet:
        wanted = with_vms(web_scope(), *web_scope().roster.vms[:2])
        _, told = await compared(fleet, wanted)
        assert told.differences == []
        await imported(fleet, wanted, prune=True)
        assert sorted(addresses(fleet)) == ["web/web-0", "web/web-1"]


async def test_scope_is_saved_once_with_its_journal_entries() -> None:
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        before = store.saves
        vms = [msgspec.structs.replace(each, host="hv-9", fault_domain=3) for each in web_scope().roster]
        await imported(fleet, with_vms(web_scope(), *vms[1:], vm("web-9")), prune=True)
        assert store.saves == before + 1
        entries = [row.entry for row in await read_journal(store, RecordKey(RecordKind.SCOPE, "web"))][1:]
        assert [(entry.kind, entry.by, entry.vms) for entry in entries if entry.kind is not EntryKind.VM_MOVED] == [
            (EntryKind.VM_REMOVED, "ann", ("web-0",)),
            (EntryKind.VM_CHANGED, "ann", tuple(f"web-{n}" for n in range(1, 6))),
            (EntryKind.VM_ADDED, "ann", ("web-9",)),
        ]
        assert [entry.vms for entry in entries if entry.kind is EntryKind.VM_MOVED] == [
            (f"web-{n}",) for n in range(1, 6)
        ]


async def test_unchanged_scopes_are_not_saved() -> None:
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        before = store.saves
        shuffled = with_vms(web_scope(), *reversed(web_scope().roster.vms))
        comparison, _ = await compared(fleet, shuffled, prune=True)
        done = await imported(fleet, shuffled, prune=True)
        assert (done.differences, comparison.unchanged, store.saves) == ([], 6, before)


async def test_vm_with_open_events_is_refused_and_the_rest_is_imported() -> None:
    """Update domains are fixed, and VMs stay, while events name them."""
    async with run_fleet(web_scope(), scope("old", vm("old-0"))) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-1", "old-0", notice=HOUR))
        other = [msgspec.structs.replace(each, update_domain=7) for each in web_scope().roster]
        done = await imported(fleet, with_vms(web_scope(), other[0], *other[2:]), prune=True)
        assert brief(done.refused) == [
            ("removed", "web", "web-1"),
            ("changed", "web", "web-0"),
            ("removed", "old", None),
            ("removed", "old", "old-0"),
        ]
        assert all("has open events" in one.refused for one in done.refused)
        domains = {each.name: each.update_domain for each in fleet.replica.scope("web").roster}
        assert domains == {"web-0": 0, "web-1": 1, "web-2": 7, "web-3": 7, "web-4": 7, "web-5": 7}


async def test_kind_of_a_scope_stays_and_everything_else_is_imported() -> None:
    async with run_fleet(web_scope()) as fleet:
        wanted = msgspec.structs.replace(web_scope(), kind=ScopeKind.CLOUD_SERVICE, approval=ApprovalRule.ALL)
        comparison, _ = await compared(fleet, wanted)
        done = await applied(fleet, comparison)
        assert [one.refused for one in done.refused] == [
            "the kind of a scope cannot change: remove the scope, and import it again"
        ]
        kept = fleet.replica.scope("web")
        assert (kept.kind, kept.approval) == (ScopeKind.AVAILABILITY_SET, ApprovalRule.ALL)


async def test_vm_moves_from_one_scope_to_another_with_its_address() -> None:
    left, right = scope("left", vm("a", ip="10.1.0.1"), vm("b")), scope("right", vm("c"))
    async with run_fleet(left, right) as fleet:
        wanted = (scope("right", vm("c"), vm("a", ip="10.1.0.1")), scope("left", vm("b")))
        _, kept = await compared(fleet, *wanted)
        assert [(one.vm, one.refused) for one in kept.refused] == [
            ("a", "address 10.1.0.1 in network default belongs to left/a")
        ]
        assert (await imported(fleet, *wanted, prune=True)).refused == []
        assert addresses(fleet) == {"left/b": [], "right/c": [], "right/a": ["10.1.0.1"]}


async def test_vm_moves_from_one_scope_to_another_with_its_id() -> None:
    moving = msgspec.structs.replace(vm("a"), vm_id="0A1B2C3D-0000-4000-8000-000000000001")
    left, right = with_vms(scope("left"), moving, vm("b")), scope("right", vm("c"))
    async with run_fleet(left, right) as fleet:
        wanted = (with_vms(right, *right.roster, moving), with_vms(left, vm("b")))
        _, kept = await compared(fleet, *wanted)
        assert [(one.vm, one.refused) for one in kept.refused] == [
            ("a", f"vm_id {moving.vm_id.lower()} belongs to left/a")
        ]
        assert (await imported(fleet, *wanted, prune=True)).refused == []
        assert [f"{view.id}/{one.name}" for view, one in fleet.replica.claims(VM_ID, moving.vm_id.lower())] == [
            "right/a"
        ]
        assert fleet.replica.scope("left").roster.find("a") is None


@pytest.mark.parametrize("scopes", [("left", "right"), ("left", "left")], ids=["two scopes", "one scope"])
async def test_two_vms_exchange_their_addresses(scopes: tuple[str, str]) -> None:
    def fleet_of(first: str, second: str) -> list[Scope]:
        vms = {"left": [vm("a", ip=first)]}
        vms.setdefault(scopes[1], []).append(vm("b", ip=second))
        return [scope(name, *each) for name, each in vms.items()]

    async with run_fleet(*fleet_of("10.1.0.1", "10.1.0.2")) as fleet:
        done = await imported(fleet, *fleet_of("10.1.0.2", "10.1.0.1"))
        assert (done.refused, len(done.differences)) == ([], 2)
        assert addresses(fleet) == {"left/a": ["10.1.0.2"], f"{scopes[1]}/b": ["10.1.0.1"]}


async def test_no_address_belongs_to_two_vms_while_it_moves() -> None:
    async with run_fleet(scope("left", vm("a", ip="10.1.0.1")), scope("right", vm("b", ip="10.1.0.2"))) as fleet:
        seen: list[int] = []
        CallbackObserver(
            fleet, lambda _: seen.extend(len(fleet.replica.claims("default", f"10.1.0.{n}")) for n in (1, 2))
        )
        await imported(fleet, scope("left", vm("a", ip="10.1.0.2")), scope("right", vm("b", ip="10.1.0.1")))
        assert max(seen) == 1


async def test_refused_vm_keeps_its_address_so_the_next_is_refused_too() -> None:
    """a wants b's address, b wants c's, and c, which is not in the file, stays: all VMs keep an address."""
    fleet_before = [scope("x", vm("a", ip="10.1.0.1")), scope("y", vm("b", ip="10.1.0.2"))]
    async with run_fleet(*fleet_before, scope("z", vm("c", ip="10.1.0.3"))) as fleet:
        wanted = (scope("x", vm("a", ip="10.1.0.2")), scope("y", vm("b", ip="10.1.0.3")))
        done = await imported(fleet, *wanted)
        assert [(one.vm, one.refused) for one in done.refused] == [
            ("a", "address 10.1.0.2 in network default belongs to y/b"),
            ("b", "address 10.1.0.3 in network default belongs to z/c"),
        ]
        assert addresses(fleet) == {"x/a": ["10.1.0.1"], "y/b": ["10.1.0.2"], "z/c": ["10.1.0.3"]}


async def test_new_vm_does_not_get_an_address_that_another_vm_of_its_scope_keeps() -> None:
    async with run_fleet(web_scope()) as fleet:
        done = await imported(fleet, with_vms(web_scope(), *web_scope().roster.vms[1:], vm("web-9", ip="10.0.0.1")))
        assert [(one.vm, one.refused) for one in done.refused] == [
            ("web-9", "address 10.0.0.1 in network default belongs to web-0")
        ]


async def test_new_scope_is_created_without_refused_vms_and_not_at_all_if_all_are_refused() -> None:
    async with run_fleet(web_scope()) as fleet:
        taken = vm("thief", ip="10.0.0.1")
        alone = msgspec.structs.replace(scope("alone", taken), kind=ScopeKind.STANDALONE)
        done = await imported(fleet, scope("some", taken, vm("honest")))
        assert brief(done.refused) == [("added", "some", "thief")]
        assert "some/honest" in addresses(fleet)
        comparison, _ = await compared(fleet, alone)
        done = await applied(fleet, comparison)
        assert brief(done.refused) == [("added", "alone", None), ("added", "alone", "thief")]
        assert fleet.replica.newest("alone") == (None, None)


class Crash(Exception):
    """The process ends here."""


async def test_interrupted_import_continues_when_it_is_run_again() -> None:
    store = MemoryStore()
    many = [scope(f"s{n}", vm("x", ip=f"10.3.{n // 250}.{n % 250}")) for n in range(3 * IMPORT_CONCURRENCY)]

    def crash(_: int, __: int) -> None:
        raise Crash

    async with run_fleet(store=store) as fleet:
        comparison = await compare_fleet(fleet.replica, many, prune=True)
        with pytest.raises(Crash):
            await apply_import(fleet, comparison, by="ann", on_progress=crash)
    told: list[tuple[int, int]] = []
    async with run_fleet(store=store) as fleet:
        rest = await compare_fleet(fleet.replica, many, prune=True)
        assert (len(rest.wanted), rest.unchanged) == (2 * IMPORT_CONCURRENCY, IMPORT_CONCURRENCY)
        await apply_import(fleet, rest, by="ann", on_progress=lambda done, all_: told.append((done, all_)))
        assert (await compare_fleet(fleet.replica, many, prune=True)).wanted == ()
    assert told == [(IMPORT_CONCURRENCY, 2 * IMPORT_CONCURRENCY), (2 * IMPORT_CONCURRENCY, 2 * IMPORT_CONCURRENCY)]


async def test_crash_between_release_and_assignment_of_an_address_loses_nothing() -> None:
    """The second save of an exchange is never made: run again, it is completed."""
    store = FailingStore()
    before = [scope("left", vm("a", ip="10.1.0.1")), scope("right", vm("b", ip="10.1.0.2"))]
    wanted = [scope("left", vm("a", ip="10.1.0.2")), scope("right", vm("b", ip="10.1.0.1"))]
    async with run_fleet(*before, store=store) as fleet:
        comparison = await compare_fleet(fleet.replica, wanted, prune=False)
        CallbackObserver(fleet, lambda _: setattr(store, "full", addresses(fleet) == {"left/a": [], "right/b": []}))
        with pytest.raises(SaveFailed):
            await apply_import(fleet, comparison, by="ann", on_progress=lambda *_: None)
        assert addresses(fleet) == {"left/a": [], "right/b": []}
    store.full = False
    async with run_fleet(store=store) as fleet:
        await imported(fleet, *wanted)
        assert addresses(fleet) == {"left/a": ["10.1.0.2"], "right/b": ["10.1.0.1"]}


async def test_scope_that_changed_after_the_comparison_is_compared_again() -> None:
    async with run_fleet(web_scope(), scope("gone", vm("g"))) as fleet:
        wanted = [with_vms(web_scope(), *web_scope().roster, vm("web-9")), scope("new", vm("n"))]
        comparison, _ = await compared(fleet, *wanted, prune=True)
        await fleet.inventory.add_vm("web", vm("web-8"), by="bob")
        await fleet.inventory.add_scope(scope("new", vm("m")), by="bob")
        await fleet.inventory.remove_scope("gone", by="bob")
        done = await applied(fleet, comparison)
        assert done.refused == []
        assert (await compare_fleet(fleet.replica, wanted, prune=True)).wanted == ()


async def test_scope_that_would_be_too_large_is_refused_as_a_whole() -> None:
    tags = {f"{n}": "x" * 500 for n in range(20)}
    large = scope("web", *(msgspec.structs.replace(vm(f"vm-{n}"), traits=Traits(tags=tags)) for n in range(100)))
    async with run_fleet(web_scope()) as fleet:
        comparison, _ = await compared(fleet, large, scope("new", vm("n")), prune=True)
        done = await applied(fleet, comparison)
        assert [(one.scope, "is full" in one.refused) for one in done.refused] == [("web", True)]
        assert len(fleet.replica.scope("web").roster) == 6
        assert fleet.replica.scope("new").roster


async def test_failed_batch_yields_what_was_done_before_its_error() -> None:
    """So an import can report how many scopes it has saved; an unknown outcome is reported before others."""

    async def apply(number: int) -> int:
        if number % 3 == 1:
            raise SaveFailed("full") if number == 1 else OutcomeUnknown("disk I/O error")
        return number

    batches = run_in_batches(range(20), apply, at_once=5)
    assert await anext(batches) == [0, 2, 3]
    with pytest.raises(OutcomeUnknown):
        await anext(batches)
