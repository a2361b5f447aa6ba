"""Fleet import: compare a fleet file with the fleet, then reconcile scope by scope; also fills an empty fleet.

Every scope is saved separately: after an interruption, running the import again continues with the remaining ones.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import msgspec

from forewarn.core.diff import FieldDiff, diff_vms
from forewarn.core.errors import CoreError, ResourceInUse
from forewarn.core.reconcile import (
    IMPORT,
    ReconcilePlan,
    plan_changes,
    reconcile,
    release_keys,
)
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster, UniqueKey, Vm, unique_keys
from forewarn.fleet.errors import SAVE_ERRORS, FleetError, OutcomeUnknown, ScopeExists, ScopeNotFound
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.inventory import in_use
from forewarn.fleet.replica import Replica
from forewarn.fleet.scopes import guarded
from forewarn.fleet.service import Fleet
from forewarn.store.port import Guards

T = TypeVar("T")
R = TypeVar("R")

IMPORT_CONCURRENCY = 4
"""How many scopes are saved at the same time. All scopes of one commit enter the replica in one iteration of the event
loop, so the number is small: an import may take long, but must not delay other requests."""

MAX_BATCH_VMS = 100
"""About how many VMs these scopes have together, for the same reason."""

FILL_CONCURRENCY = 256
"""How many scopes are saved at the same time while an empty fleet is filled: many share a commit."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one scope or VM by an import; `refused` is the reason if the change is not possible."""

    what: Literal["added", "changed", "removed"]
    scope: str
    vm: str | None = None
    fields: FieldDiff = {}
    refused: str = ""


ReportDifferences = Callable[[Sequence[Difference]], None]
"""Receives the differences of each scope that has some, as soon as they are known. There may be hundreds of thousands
in total, so the receiver chooses how to store them."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing the fleet with a file, and how many VMs already match it.

    It has the scopes of the file that differ, the scopes to remove, and by scope the addresses that it must release to
    another one.
    """

    unchanged: int
    wanted: tuple[Scope, ...]
    unwanted: tuple[str, ...]
    released: dict[str, frozenset[UniqueKey]]
    prune: bool


async def compare_fleet(
    replica: Replica, wanted: Sequence[Scope], *, prune: bool, report: ReportDifferences | None = None
) -> Comparison:
    """Compare the fleet with a file, in short time slices, and report the differences. Nothing is changed.

    Scopes and VMs that are not in the file stay, unless `prune` is set.
    """
    return await _Comparer(replica, wanted, prune=prune).compare(report)


class _AddressTransfer(NamedTuple):
    """A VM of the file that should get an address of a VM in another scope."""

    scope: str
    vm: str
    key: UniqueKey
    owner: str
    owner_vm: str


class _Comparer:
    def __init__(self, replica: Replica, wanted: Sequence[Scope], *, prune: bool) -> None:
        self._replica = replica
        self._wanted = {scope.id: scope for scope in wanted}
        self._prune = prune
        self._present: dict[str, Scope] = {}
        self._plans: dict[str, ReconcilePlan] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._transfers: list[_AddressTransfer] = []
        self._fair_share = FairShare()

    async def compare(self, report: ReportDifferences | None) -> Comparison:
        unwanted = self._unwanted()
        for scope in self._wanted.values():
            await self._fair_share.wait_turn()
            self._plan(scope)
        await self._refuse_kept_addresses()
        return await self._build_comparison(unwanted, report)

    def _unwanted(self) -> tuple[Scope, ...]:
        if not self._prune:
            return ()
        present = (view.scope for view in self._replica.views() if view.id not in self._wanted)
        return tuple(scope for scope in present if scope is not None)

    def _plan(self, scope: Scope) -> None:
        present, _ = self._replica.newest(scope.id)
        if present is None:
            self._transfers += _find_transfers(self._replica, scope.id, ((vm, unique_keys(vm)) for vm in scope.roster))
            return
        self._present[scope.id] = present
        self._plans[scope.id] = found = plan_changes(present, scope, prune=self._prune)
        self._transfers += _find_transfers(self._replica, scope.id, _new_keys(found))

    async def _refuse_kept_addresses(self) -> None:
        """Refuse VMs an address that its owner keeps; a refused VM keeps its own addresses, so this may cascade."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for transfer in self._transfers:
                await self._fair_share.wait_turn()
                if transfer.vm not in self._refused.get(transfer.scope, {}) and not self._owner_releases(transfer):
                    self._refuse(transfer)
                    is_settled = False

    def _refuse(self, transfer: _AddressTransfer) -> None:
        refused = self._refused.setdefault(transfer.scope, {})
        refused[transfer.vm] = str(in_use(transfer.key, f"{transfer.owner}/{transfer.owner_vm}"))
        if transfer.scope in self._plans:
            present, wanted = self._present[transfer.scope], self._wanted[transfer.scope]
            self._plans[transfer.scope] = plan_changes(present, wanted, prune=self._prune, refused=refused)

    def _owner_releases(self, transfer: _AddressTransfer) -> bool:
        """Return whether the owner of an address or id loses it in this import."""
        if transfer.owner not in self._wanted:
            owner, _ = self._replica.newest(transfer.owner)
            return owner is None or (self._prune and not owner.events)
        found = self._plans.get(transfer.owner)
        return found is not None and transfer.key not in _kept_keys(found, transfer.owner_vm, transfer.key)

    async def _build_comparison(self, unwanted: Sequence[Scope], report: ReportDifferences | None) -> Comparison:
        differing: list[Scope] = []
        unchanged = 0
        for scope in self._wanted.values():
            await self._fair_share.wait_turn()
            found = self._plans.pop(scope.id, None)  # one by one: freeing all plans of a large fleet at once is slow
            if found is None or not found.is_empty:
                differing.append(scope)
                if report is not None:
                    report(self._differences(scope, found))
            unchanged += 0 if found is None else len(scope.roster) - len(found.added) - len(found.changed)
        for scope in unwanted:
            await self._fair_share.wait_turn()
            if report is not None:
                report(tuple(_removed_differences(scope)))
        return Comparison(
            unchanged=unchanged,
            wanted=tuple(differing),
            unwanted=tuple(scope.id for scope in unwanted),
            released=self._released_addresses(),
            prune=self._prune,
        )

    def _differences(self, scope: Scope, found: ReconcilePlan | None) -> Sequence[Difference]:
        if found is not None:
            return tuple(_plan_differences(scope.id, found))
        return tuple(_added_differences(scope, self._refused.get(scope.id, {})))

    def _released_addresses(self) -> dict[str, frozenset[UniqueKey]]:
        released: dict[str, frozenset[UniqueKey]] = {}
        for transfer in self._transfers:
            if transfer.vm not in self._refused.get(transfer.scope, {}):
                released[transfer.owner] = released.get(transfer.owner, frozenset()) | {transfer.key}
        return released


def _new_keys(found: ReconcilePlan) -> Iterator[tuple[Vm, set[UniqueKey]]]:
    for vm in found.added:
        yield vm, unique_keys(vm)
    for old, new in found.changed:
        yield new, unique_keys(new) - unique_keys(old)


def _kept_keys(found: ReconcilePlan, vm: str, key: UniqueKey) -> set[UniqueKey]:
    """Return which of its addresses the VM in this place keeps."""
    for old, new in found.changed:
        if old.name == vm and found.allows(old):
            return unique_keys(new)
    is_gone = any(gone.name == vm and found.allows(gone) for gone in found.removed)
    return set() if is_gone else {key}


def _find_transfers(
    replica: Replica, scope: str, wanted: Iterable[tuple[Vm, set[UniqueKey]]]
) -> Iterator[_AddressTransfer]:
    for vm, new in wanted:
        for network, ip in new:
            if ip in replica.address_index(network):
                for view, owner in replica.claims(network, ip):
                    if view.id != scope:
                        yield _AddressTransfer(scope, vm.name, (network, ip), view.id, owner.name)


def _added_differences(scope: Scope, refused: Mapping[str, str]) -> Iterator[Difference]:
    yield Difference(what="added", scope=scope.id, refused=_refusal_reason(scope, refused))
    for vm in scope.roster:
        yield Difference(what="added", scope=scope.id, vm=vm.name, refused=refused.get(vm.name, ""))


def _refusal_reason(scope: Scope, refused: Mapping[str, str]) -> str:
    """Return why a scope is not created, if none of its VMs can be."""
    return next(iter(refused.values())) if scope.roster and len(refused) == len(scope.roster) else ""


def _plan_differences(scope: str, found: ReconcilePlan) -> Iterator[Difference]:
    if found.fields:
        yield Difference(what="changed", scope=scope, fields=found.fields, refused=found.refused.get(None, ""))
    for vm in found.removed:
        yield Difference(what="removed", scope=scope, vm=vm.name, refused=found.refused.get(vm.name, ""))
    for old, new in found.changed:
        refused = found.refused.get(old.name, "")
        yield Difference(what="changed", scope=scope, vm=old.name, fields=diff_vms(old, new), refused=refused)
    for vm in found.added:
        yield Difference(what="added", scope=scope, vm=vm.name, refused=found.refused.get(vm.name, ""))


def _removed_differences(scope: Scope, refused: str = "") -> Iterator[Difference]:
    if scope.events and not refused:
        refused = str(
            ResourceInUse(f"scope {scope.id}", tuple(event.id for event in scope.events), advice="cancel them")
        )
    yield Difference(what="removed", scope=scope.id, refused=refused)
    for vm in scope.roster:
        yield Difference(what="removed", scope=scope.id, vm=vm.name, refused=refused)


async def apply_import(
    fleet: Fleet,
    comparison: Comparison,
    *,
    by: str,
    on_progress: Callable[[int, int], None],
    report: ReportDifferences | None = None,
) -> None:
    """Apply a fleet file; report the applied and refused changes, and the number of finished scopes now and then.

    Each scope is compared again, with its value at that time, when its turn comes.
    """
    work = _Import(fleet, comparison, by=by)
    items: list[Scope | str] = [*comparison.wanted, *comparison.unwanted]
    async for _ in run_in_batches(comparison.released, work.release_keys, at_once=IMPORT_CONCURRENCY):
        on_progress(0, len(items))
    number = 0
    async for done in run_in_batches(items, work.reconcile_item, at_once=IMPORT_CONCURRENCY, weight=_weight):
        if report is not None:
            for differences in filter(None, done):
                report(differences)
        number += len(done)
        on_progress(number, len(items))


def _weight(item: Scope | str) -> float:
    return len(item.roster) / MAX_BATCH_VMS if isinstance(item, Scope) else 0


async def run_in_batches(
    items: Iterable[T], apply: Callable[[T], Awaitable[R]], *, at_once: int, weight: Callable[[T], float] = lambda _: 0
) -> AsyncIterator[list[R]]:
    """Process all items in batches of concurrent calls, and yield the results of each batch.

    A batch has at most `at_once` items, and ends with the item that makes its weight 1 or more. If calls fail, the
    results of the other calls of the batch come first; then an error is raised, an unknown outcome before others.
    """
    for batch in _batches(items, at_once, weight):
        results = await asyncio.gather(*(apply(item) for item in batch), return_exceptions=True)
        yield [result for result in results if not isinstance(result, BaseException)]
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            raise min(errors, key=lambda error: not isinstance(error, OutcomeUnknown))


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
        self._released = comparison.released
        self._prune = comparison.prune
        self._by = by
        self._fair_share = FairShare()

    async def release_keys(self, id_: str) -> None:
        """Take from a scope the addresses that other scopes get: no two VMs ever have the same address."""
        await self._fair_share.wait_turn()
        with suppress(ScopeNotFound):
            await self._fleet.scopes.apply(
                id_,
                lambda scope: release_keys(
                    scope,
                    self._wanted.get(id_),
                    self._released[id_],
                    by=self._by,
                    now=self._fleet.clock.now(),
                    prune=self._prune,
                ),
            )

    async def reconcile_item(self, item: Scope | str) -> Sequence[Difference]:
        """Reconcile or remove one scope."""
        await self._fair_share.wait_turn()
        if isinstance(item, str):
            return await self._remove(item)
        try:
            return await self._reconcile_with_retry(item)
        except SAVE_ERRORS:
            raise
        except (CoreError, FleetError) as error:
            return (Difference(what="changed", scope=item.id, refused=str(error)),)

    async def _reconcile_with_retry(self, wanted: Scope) -> Sequence[Difference]:
        """Reconcile the scope, also if another request creates or removes it at the same time."""
        with suppress(ScopeExists, ScopeNotFound):
            return await self._reconcile(wanted)
        return await self._reconcile(wanted)

    async def _reconcile(self, wanted: Scope) -> Sequence[Difference]:
        present, _ = self._fleet.replica.newest(wanted.id)
        if present is None:
            return await self._add(wanted)
        return await self._fleet.inventory.registry.run(lambda guards: self._reconcile_present(wanted, guards))

    async def _reconcile_present(self, wanted: Scope, guards: Callable[[], Guards]) -> Sequence[Difference]:
        found = plan_changes(self._fleet.replica.scope(wanted.id), wanted, prune=self._prune)
        refused = self._conflicts(wanted.id, _new_keys(found))
        given = [vm for vm, new in _new_keys(found) if new and vm.name not in refused]
        with self._fleet.inventory.claims.claim(wanted.id, given, other_scopes_only=True):
            done = await self._fleet.scopes.apply(
                wanted.id,
                lambda scope: guarded(
                    reconcile(
                        scope,
                        wanted,
                        self._fleet.scopes.rule_context,
                        by=self._by,
                        now=self._fleet.clock.now(),
                        prune=self._prune,
                        refused=refused,
                    ),
                    guards(),
                ),
            )
        await self._fair_share.wait_turn()
        return tuple(_plan_differences(wanted.id, done))

    async def _add(self, wanted: Scope) -> Sequence[Difference]:
        refused = self._conflicts(wanted.id, ((vm, unique_keys(vm)) for vm in wanted.roster))
        if not _refusal_reason(wanted, refused):
            vms = tuple(vm for vm in wanted.roster if vm.name not in refused)
            await self._fleet.inventory.add_scope(
                wanted if len(vms) == len(wanted.roster) else msgspec.structs.replace(wanted, roster=Roster(vms)),
                by=self._by,
            )
        await self._fair_share.wait_turn()
        return tuple(_added_differences(wanted, refused))

    def _conflicts(self, scope: str, wanted: Iterable[tuple[Vm, set[UniqueKey]]]) -> dict[str, str]:
        """Return which VMs cannot get an address or id because a VM of another scope has it or is about to get it."""
        owner = self._fleet.inventory.claims.owner
        return {
            vm.name: str(in_use(key, other))
            for vm, new in wanted
            for key in new
            if (other := owner(key, excluding=f"{scope}/")) is not None
        }

    async def _remove(self, id_: str) -> Sequence[Difference]:
        present, _ = self._fleet.replica.newest(id_)
        if present is None:
            return ()
        try:
            await self._fleet.inventory.remove_scope(id_, by=self._by, why=IMPORT)
        except ResourceInUse as error:
            return tuple(_removed_differences(present, str(error)))
        except ScopeNotFound:
            return ()
        return tuple(_removed_differences(present))


class FleetFileConflict(FleetError):
    """Filling was interrupted, and the existing data is not from this file."""

    code = "fleet-not-empty"
    template = (
        "an earlier start was interrupted while it imported another fleet file (see scope {scope}): "
        "start with that file again, or with an empty data directory"
    )
    scope: str


async def fill_fleet(fleet: Fleet, scopes: Sequence[Scope], *, by: str, on_saved: Callable[[int], None]) -> None:
    """Create the scopes that are missing, and record when all exist; report the number of saved scopes now and then."""

    def refuse_existing(found: Sequence[Difference]) -> None:
        for one in found:
            if one.what != "added" or fleet.replica.newest(one.scope)[0] is not None:
                raise FleetFileConflict(one.scope)

    comparison = await compare_fleet(fleet.replica, scopes, prune=True, report=refuse_existing)
    saved = len(scopes) - len(comparison.wanted)
    async for done in run_in_batches(
        comparison.wanted, partial(fleet.inventory.add_scope, by=by), at_once=FILL_CONCURRENCY
    ):
        saved += len(done)
        on_saved(saved)
    await fleet.inventory.mark_filled()
