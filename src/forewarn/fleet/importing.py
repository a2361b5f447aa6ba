"""Importing a fleet file into a fleet that is there: first what differs, then making it so.

Every scope is saved by itself, so whoever is interrupted runs it again, and it goes on with what still differs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeVar

import msgspec

from forewarn.core.diff import FieldDiff, diff_vms
from forewarn.core.errors import CoreError, ResourceInUse
from forewarn.core.reconcile import (
    IMPORT,
    AddressKey,
    ReconcilePlan,
    address_keys,
    plan_changes,
    reconcile,
    release_addresses,
)
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster, Vm
from forewarn.fleet.errors import AddressTaken, FleetError, NoSuchScope, NotSaved, ScopeExists
from forewarn.fleet.replica import Replica
from forewarn.fleet.service import Fleet
from forewarn.fleet.turns import Turns

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 4
"""How many scopes are saved at the same time. What is saved in one step is taken into the replica in one turn of the
event loop, so few at a time: an import may last, and nobody must wait for it."""

VMS_AT_ONCE = 100
"""How many VMs these scopes have together, more or less: what is saved at once is taken over at once, too."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What an import does to one scope or VM; `refused` says why it does not, where it does not."""

    what: Literal["added", "changed", "removed"]
    scope: str
    vm: str | None = None
    fields: FieldDiff = {}
    refused: str = ""


Tell = Callable[[Sequence[Difference]], None]
"""Takes the differences of one scope, of which there are some, as soon as they are known: all of them together may be
hundreds of thousands, so whoever wants them keeps them in the form that suits."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to make the fleet what a file says, and how many VMs are as it says.

    These are the scopes of the file that differ, those to remove, and by scope the addresses that it hands over to
    another one.
    """

    unchanged: int
    wanted: tuple[Scope, ...]
    unwanted: tuple[str, ...]
    handed: dict[str, frozenset[AddressKey]]
    prune: bool


async def compare(replica: Replica, wanted: Sequence[Scope], *, prune: bool, tell: Tell | None = None) -> Comparison:
    """Compare the fleet with a file, in turns with whatever else goes on, and tell what differs. Nothing changes.

    Scopes and VMs that the file does not have stay as they are, unless `prune` says that they go.
    """
    return await _Work(replica, wanted, prune=prune).compare(tell)


class _Take(NamedTuple):
    """A VM of the file that should get an address which a VM of another scope has."""

    scope: str
    vm: str
    place: AddressKey
    owner: str
    owner_vm: str


class _Work:
    def __init__(self, replica: Replica, wanted: Sequence[Scope], *, prune: bool) -> None:
        self._replica = replica
        self._wanted = {scope.id: scope for scope in wanted}
        self._prune = prune
        self._present: dict[str, Scope] = {}
        self._plans: dict[str, ReconcilePlan] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._takes: list[_Take] = []
        self._turns = Turns()

    async def compare(self, tell: Tell | None) -> Comparison:
        unwanted = self._unwanted()
        for scope in self._wanted.values():
            await self._turns.mine()
            self._plan(scope)
        await self._refuse_what_is_kept()
        return await self._compared(unwanted, tell)

    def _unwanted(self) -> tuple[Scope, ...]:
        if not self._prune:
            return ()
        present = (view.scope for view in self._replica.views() if view.id not in self._wanted)
        return tuple(scope for scope in present if scope is not None)

    def _plan(self, scope: Scope) -> None:
        present, _ = self._replica.newest(scope.id)
        if present is None:
            self._takes += _takes(self._replica, scope.id, ((vm, address_keys(vm)) for vm in scope.roster))
            return
        self._present[scope.id] = present
        self._plans[scope.id] = found = plan_changes(present, scope, prune=self._prune)
        self._takes += _takes(self._replica, scope.id, _new_places(found))

    async def _refuse_what_is_kept(self) -> None:
        """Refuse VMs an address that its owner keeps; whoever is refused keeps its own, so this may go on and on."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for take in self._takes:
                await self._turns.mine()
                if take.vm not in self._refused.get(take.scope, {}) and not self._gives_up(take):
                    self._refuse(take)
                    is_settled = False

    def _refuse(self, take: _Take) -> None:
        network, ip = take.place
        refused = self._refused.setdefault(take.scope, {})
        refused[take.vm] = str(AddressTaken(ip, network, f"{take.owner}/{take.owner_vm}"))
        if take.scope in self._plans:
            present, wanted = self._present[take.scope], self._wanted[take.scope]
            self._plans[take.scope] = plan_changes(present, wanted, prune=self._prune, refused=refused)

    def _gives_up(self, take: _Take) -> bool:
        """Tell whether the owner of an address loses it in this import."""
        if take.owner not in self._wanted:
            owner, _ = self._replica.newest(take.owner)
            return owner is None or (self._prune and not owner.events)
        found = self._plans.get(take.owner)
        return found is not None and take.place not in _kept_places(found, take.owner_vm, take.place)

    async def _compared(self, unwanted: Sequence[Scope], tell: Tell | None) -> Comparison:
        differing: list[Scope] = []
        unchanged = 0
        for scope in self._wanted.values():
            await self._turns.mine()
            found = self._plans.pop(scope.id, None)  # with a large fleet, to let go of all plans at once takes long
            if found is None or not found.is_empty:
                differing.append(scope)
                if tell is not None:
                    tell(self._differences(scope, found))
            unchanged += 0 if found is None else len(scope.roster) - len(found.added) - len(found.changed)
        for scope in unwanted:
            await self._turns.mine()
            if tell is not None:
                tell(tuple(_removed(scope)))
        return Comparison(
            unchanged=unchanged,
            wanted=tuple(differing),
            unwanted=tuple(scope.id for scope in unwanted),
            handed=self._handed(),
            prune=self._prune,
        )

    def _differences(self, scope: Scope, found: ReconcilePlan | None) -> Sequence[Difference]:
        if found is not None:
            return tuple(_planned(scope.id, found))
        return tuple(_added(scope, self._refused.get(scope.id, {})))

    def _handed(self) -> dict[str, frozenset[AddressKey]]:
        handed: dict[str, frozenset[AddressKey]] = {}
        for take in self._takes:
            if take.vm not in self._refused.get(take.scope, {}):
                handed[take.owner] = handed.get(take.owner, frozenset()) | {take.place}
        return handed


def _new_places(found: ReconcilePlan) -> Iterator[tuple[Vm, set[AddressKey]]]:
    for vm in found.added:
        yield vm, address_keys(vm)
    for old, new in found.changed:
        yield new, address_keys(new) - address_keys(old)


def _kept_places(found: ReconcilePlan, vm: str, place: AddressKey) -> set[AddressKey]:
    """Return what the VM that has a place keeps of it."""
    for old, new in found.changed:
        if old.name == vm and found.allows(old):
            return address_keys(new)
    is_gone = any(gone.name == vm and found.allows(gone) for gone in found.removed)
    return set() if is_gone else {place}


def _takes(replica: Replica, scope: str, wanted: Iterable[tuple[Vm, set[AddressKey]]]) -> Iterator[_Take]:
    for vm, new in wanted:
        for network, ip in new:
            if ip in replica.owners(network):
                for view, owner in replica.claims(network, ip):
                    if view.id != scope:
                        yield _Take(scope, vm.name, (network, ip), view.id, owner.name)


def _added(scope: Scope, refused: Mapping[str, str]) -> Iterator[Difference]:
    yield Difference(what="added", scope=scope.id, refused=_why_not_at_all(scope, refused))
    for vm in scope.roster:
        yield Difference(what="added", scope=scope.id, vm=vm.name, refused=refused.get(vm.name, ""))


def _why_not_at_all(scope: Scope, refused: Mapping[str, str]) -> str:
    """Say why a scope is not made, where not one of its VMs can be."""
    return next(iter(refused.values())) if scope.roster and len(refused) == len(scope.roster) else ""


def _planned(scope: str, found: ReconcilePlan) -> Iterator[Difference]:
    if found.fields:
        yield Difference(what="changed", scope=scope, fields=found.fields, refused=found.refused.get(None, ""))
    for vm in found.removed:
        yield Difference(what="removed", scope=scope, vm=vm.name, refused=found.refused.get(vm.name, ""))
    for old, new in found.changed:
        refused = found.refused.get(old.name, "")
        yield Difference(what="changed", scope=scope, vm=old.name, fields=diff_vms(old, new), refused=refused)
    for vm in found.added:
        yield Difference(what="added", scope=scope, vm=vm.name, refused=found.refused.get(vm.name, ""))


def _removed(scope: Scope, refused: str = "") -> Iterator[Difference]:
    if scope.events and not refused:
        refused = str(
            ResourceInUse(f"scope {scope.id}", tuple(event.id for event in scope.events), advice="cancel them")
        )
    yield Difference(what="removed", scope=scope.id, refused=refused)
    for vm in scope.roster:
        yield Difference(what="removed", scope=scope.id, vm=vm.name, refused=refused)


async def apply_import(
    fleet: Fleet, comparison: Comparison, *, by: str, on_progress: Callable[[int, int], None], tell: Tell | None = None
) -> None:
    """Make the fleet what the file says; tell what was done and refused, and after each few scopes how many are done.

    What was compared is compared again when it is its turn, with the scope as it is then.
    """
    work = _Import(fleet, comparison, by=by)
    items: list[Scope | str] = [*comparison.wanted, *comparison.unwanted]
    async for _ in in_batches(comparison.handed, work.hand_over, at_once=AT_ONCE):
        pass
    number = 0
    async for done in in_batches(items, work.settle, at_once=AT_ONCE, weight=_weight):
        if tell is not None:
            for differences in filter(None, done):
                tell(differences)
        number += len(done)
        on_progress(number, len(items))


def _weight(item: Scope | str) -> float:
    return len(item.roster) / VMS_AT_ONCE if isinstance(item, Scope) else 0


async def in_batches(
    items: Iterable[T], do: Callable[[T], Awaitable[R]], *, at_once: int, weight: Callable[[T], float] = lambda _: 0
) -> AsyncIterator[list[R]]:
    """Do something to all items, some at a time, and give what comes of each of these batches.

    A batch has at most `at_once` items, and ends with the one that makes its weight 1 or more.
    """
    for batch in _batches(items, at_once, weight):
        yield await asyncio.gather(*(do(item) for item in batch))


def _batches(items: Iterable[T], at_once: int, weight: Callable[[T], float]) -> Iterator[list[T]]:
    batch: list[T] = []
    total = 0.0
    for item in items:
        batch.append(item)
        total += weight(item)
        if len(batch) >= at_once or total >= 1:
            yield batch
            batch, total = [], 0.0
    if batch:
        yield batch


class _Import:
    def __init__(self, fleet: Fleet, comparison: Comparison, *, by: str) -> None:
        self._fleet = fleet
        self._wanted = {scope.id: scope for scope in comparison.wanted}
        self._handed = comparison.handed
        self._prune = comparison.prune
        self._by = by
        self._turns = Turns()

    async def hand_over(self, id_: str) -> None:
        """Take from a scope what another one gets: no two VMs have one address, not even for a moment."""
        await self._turns.mine()
        with suppress(NoSuchScope):
            await self._fleet.apply(
                id_,
                lambda scope: release_addresses(
                    scope,
                    self._wanted.get(id_),
                    self._handed[id_],
                    by=self._by,
                    now=self._fleet.clock.now(),
                    prune=self._prune,
                ),
            )

    async def settle(self, item: Scope | str) -> Sequence[Difference]:
        """Make one scope what it should be, or remove it."""
        await self._turns.mine()
        if isinstance(item, str):
            return await self._remove(item)
        try:
            return await self._make_for_sure(item)
        except NotSaved:
            raise
        except (CoreError, FleetError) as error:
            return (Difference(what="changed", scope=item.id, refused=str(error)),)

    async def _make_for_sure(self, wanted: Scope) -> Sequence[Difference]:
        """Make the scope what it should be, also where somebody makes or removes it at the same moment."""
        with suppress(ScopeExists, NoSuchScope):
            return await self._make(wanted)
        return await self._make(wanted)

    async def _make(self, wanted: Scope) -> Sequence[Difference]:
        present, _ = self._fleet.replica.newest(wanted.id)
        if present is None:
            return await self._add(wanted)
        found = plan_changes(present, wanted, prune=self._prune)
        refused = self._kept_by_others(wanted.id, _new_places(found))
        given = [vm for vm, new in _new_places(found) if new and vm.name not in refused]
        with self._fleet.inventory.addresses.claimed(wanted.id, given, from_others=True):
            done = await self._fleet.apply(
                wanted.id,
                lambda scope: reconcile(
                    scope,
                    wanted,
                    self._fleet.conditions,
                    by=self._by,
                    now=self._fleet.clock.now(),
                    prune=self._prune,
                    refused=refused,
                ),
            )
        await self._turns.mine()
        return tuple(_planned(wanted.id, done))

    async def _add(self, wanted: Scope) -> Sequence[Difference]:
        refused = self._kept_by_others(wanted.id, ((vm, address_keys(vm)) for vm in wanted.roster))
        if not _why_not_at_all(wanted, refused):
            vms = tuple(vm for vm in wanted.roster if vm.name not in refused)
            await self._fleet.inventory.add_scope(
                wanted if len(vms) == len(wanted.roster) else msgspec.structs.replace(wanted, roster=Roster(vms)),
                by=self._by,
            )
        await self._turns.mine()
        return tuple(_added(wanted, refused))

    def _kept_by_others(self, scope: str, wanted: Iterable[tuple[Vm, set[AddressKey]]]) -> dict[str, str]:
        """Say which VMs cannot get an address because a VM of another scope has it, or is about to get it."""
        owner = self._fleet.inventory.addresses.owner
        return {
            vm.name: str(AddressTaken(ip, network, other))
            for vm, new in wanted
            for network, ip in new
            if (other := owner(network, ip, besides=f"{scope}/")) is not None
        }

    async def _remove(self, id_: str) -> Sequence[Difference]:
        present, _ = self._fleet.replica.newest(id_)
        if present is None:
            return ()
        try:
            await self._fleet.inventory.remove_scope(id_, by=self._by, why=IMPORT)
        except ResourceInUse as error:
            return tuple(_removed(present, str(error)))
        except NoSuchScope:
            return ()
        return tuple(_removed(present))
