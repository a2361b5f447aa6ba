"""Inventory commands: add, change and remove scopes and VMs.

An address belongs to one VM of its network, and an id to one VM (`core.vm.unique_keys`); claims prevent two concurrent
commands from assigning the same one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from forewarn.core import inventory as rules
from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.idempotency import IdempotencyKey, is_repeated_request
from forewarn.core.policy import RuleContext
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.vm import VM_ID, Traits, UniqueKey, Vm, unique_keys
from forewarn.fleet import fleet_state
from forewarn.fleet.errors import AddressInUse, ScopeExists, VmIdInUse
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.main_loop import Decision
from forewarn.fleet.registry import Registry
from forewarn.fleet.replica import Replica
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.targets import select_vms
from forewarn.store.port import Guards


class IdentityClaims:
    """The addresses and ids of VMs, which the replica has, and those that are claimed until they are saved."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._claimed: dict[UniqueKey, list[str]] = {}

    @contextmanager
    def claim(
        self, scope: str, vms: Iterable[Vm], *, old: Vm | None = None, other_scopes_only: bool = False
    ) -> Iterator[None]:
        """Claim addresses and ids of a scope's VMs while these are being saved; refuse if one of them is taken.

        `old` is the VM before its change; what it has already is not checked again, because older records may have
        duplicates. `other_scopes_only`: the rule that is applied checks the scope itself.
        """
        wanted: dict[UniqueKey, str] = {}
        kept = unique_keys(old) if old is not None else set()
        for vm in vms:
            owner = f"{scope}/{vm.name}"
            for key in unique_keys(vm) - kept:
                other = self.owner(key, excluding=f"{scope}/" if other_scopes_only else owner) or wanted.get(key)
                if other is not None and other != owner:
                    raise in_use(key, other)
                wanted[key] = owner
        for key, owner in wanted.items():
            self._claimed.setdefault(key, []).append(owner)
        try:
            yield
        finally:
            for key, owner in wanted.items():
                self._release(key, owner)

    def owner(self, key: UniqueKey, *, excluding: str) -> str | None:
        """Return who has or claims an address or id, other than this VM (`scope/name`) or this scope (`scope/`)."""
        scope, _, name = excluding.rpartition("/")
        found = self._replica.claims(*key, except_scope=None if name else scope)
        claims = (f"{view.id}/{vm.name}" for view, vm in found)
        owners = [*self._claimed.get(key, ()), *claims]
        return next((owner for owner in owners if not _matches(owner, excluding)), None)

    def _release(self, key: UniqueKey, owner: str) -> None:
        self._claimed[key].remove(owner)
        if not self._claimed[key]:
            del self._claimed[key]


def in_use(key: UniqueKey, owner: str) -> AddressInUse | VmIdInUse:
    """Return the error for an address or id that another VM has."""
    kind, value = key
    return VmIdInUse(value, owner) if kind == VM_ID else AddressInUse(value, kind, owner)


def _matches(vm: str, name: str) -> bool:
    scope, _, bare = name.rpartition("/")
    its_scope, _, its_name = vm.rpartition("/")
    return scope == its_scope and (not bare or bare.casefold() == its_name.casefold())


class AddressConflict(Exception):
    """The VM got other addresses while its change was waiting: claim those."""


class Inventory:
    """The commands on the inventory. `by` is the caller; a repeated `idempotency_key` changes nothing."""

    def __init__(
        self,
        scopes: Scopes,
        idempotent: IdempotentScopes,
        state_record: FleetStateRecord,
        registry: Registry,
    ) -> None:
        self.registry = registry
        self.claims = IdentityClaims(scopes.replica)
        self._scopes = scopes
        self._replica = scopes.replica
        self._idempotent = idempotent
        self._clock = scopes.clock
        self._state_record = state_record

    @property
    def is_filled(self) -> bool:
        """Whether an initial fleet file was imported completely."""
        return self._state_record.state.filled

    async def mark_filled(self) -> None:
        """Record that the initial fleet file was imported completely."""
        await self._state_record.apply(fleet_state.mark_filled)

    def select(
        self,
        *,
        vms: Sequence[str] = (),
        host: str | None = None,
        scope: str | None = None,
        update_domain: int | None = None,
    ) -> tuple[str, ...]:
        """Return the full names of the selected VMs: by name, host, scope, or update domain of a scope."""
        return select_vms(self._replica, vms=vms, host=host, scope=scope, update_domain=update_domain)

    def _rule_context(self) -> RuleContext:
        return self._scopes.rule_context

    def check_new(self, scope: str) -> None:
        """Refuse the name of a new scope that differs from an existing one only in case.

        A fleet file cannot have both, so an export could not be imported again.
        """
        if (other := self._replica.find_other_case(scope)) is not None:
            raise ScopeExists(other)

    async def add_scope(self, scope: Scope, *, by: str, idempotency_key: IdempotencyKey | None = None) -> None:
        """Create a scope. Its addresses and ids must be free."""

        async def create(guards: Callable[[], Guards]) -> None:
            def command(present: Scope | None) -> Decision[Scope, None]:
                if present is not None:
                    self._check_created_by(present, idempotency_key)
                    return Decision(present, (), None)
                change = rules.create_scope(scope, by=by, now=self._clock.now(), idempotency_key=idempotency_key)
                return Decision(change.scope, change.entries, None, guards())

            if self.registry.is_shared and self._replica.newest(scope.id)[0] is None:
                self.check_new(scope.id)
            with self.claims.claim(scope.id, scope.roster):
                await self._scopes.decide(scope.id, command)

        self._idempotent.check(idempotency_key, scope.id)
        if await self._was_created_or_removed(scope.id, idempotency_key):
            return
        present, _ = self._replica.newest(scope.id)
        if present is not None:
            self._check_created_by(present, idempotency_key)
        else:
            await self.registry.run(create)

    def _check_created_by(self, present: Scope, idempotency_key: IdempotencyKey | None) -> None:
        """Refuse to create a scope that exists, unless this request created it."""
        if idempotency_key is None or not is_repeated_request(
            present.seen_keys, idempotency_key, now=self._clock.now()
        ):
            raise ScopeExists(present.id)

    async def change_scope(
        self,
        scope: str,
        *,
        by: str,
        traits: Callable[[Traits], Traits] | None = None,
        approval: ApprovalRule | None = None,
        auto_approve: tuple[EventType, ...] | None = None,
        idempotency_key: IdempotencyKey | None = None,
    ) -> None:
        """Change traits or rules of a scope; omitted fields stay unchanged.

        `traits` computes the new traits from the newest ones, without side effects.
        """
        await self._idempotent.apply(
            scope,
            lambda value: rules.change_scope(
                value,
                self._rule_context(),
                by=by,
                now=self._clock.now(),
                traits=None if traits is None else traits(value.traits),
                approval=approval,
                auto_approve=auto_approve,
            ),
            idempotency_key,
        )

    async def remove_scope(
        self, scope: str, *, by: str, why: str = "", force: bool = False, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Remove a scope with its VMs. Open events need force: Scheduled ones are canceled, Started ones given up."""
        if await self._was_created_or_removed(scope, idempotency_key):
            return
        await self._idempotent.apply(
            scope,
            lambda value: rules.remove_scope(value, by=by, now=self._clock.now(), why=why, force=force),
            idempotency_key,
        )

    async def add_vm(self, scope: str, vm: Vm, *, by: str, idempotency_key: IdempotencyKey | None = None) -> None:
        """Add a VM. Its addresses and ids must be free."""

        async def add(guards: Callable[[], Guards]) -> None:
            if self._has_seen_key(scope, idempotency_key):
                return
            with self.claims.claim(scope, [vm]):
                await self._idempotent.apply(
                    scope, lambda value: rules.add_vm(value, vm, by=by, now=self._clock.now()), idempotency_key, guards
                )

        await self.registry.run(add)

    async def change_vm(
        self,
        scope: str,
        name: str,
        change: Callable[[Vm], Vm],
        *,
        by: str,
        idempotency_key: IdempotencyKey | None = None,
    ) -> None:
        """Change a VM: `change` computes the new VM from the newest one, without side effects."""

        async def apply(guards: Callable[[], Guards]) -> None:
            if self._has_seen_key(scope, idempotency_key):
                return
            is_changed = False
            while not is_changed:
                wanted = change(self._replica.scope(scope).vm(name))
                with suppress(AddressConflict):
                    await self._change_vm(scope, name, change, wanted, guards, by=by, idempotency_key=idempotency_key)
                    is_changed = True

        await self.registry.run(apply)

    async def _change_vm(
        self,
        scope: str,
        name: str,
        change: Callable[[Vm], Vm],
        wanted: Vm,
        guards: Callable[[], Guards],
        *,
        by: str,
        idempotency_key: IdempotencyKey | None,
    ) -> None:
        def rule(value: Scope) -> Change[None]:
            old = value.vm(name)
            new = msgspec.structs.replace(change(old), name=old.name)
            if new.addresses != wanted.addresses:
                raise AddressConflict
            return rules.change_vm(value, new, self._rule_context(), by=by, now=self._clock.now())

        with self.claims.claim(scope, [wanted], old=self._replica.scope(scope).vm(name)):
            await self._idempotent.apply(scope, rule, idempotency_key, guards)

    async def remove_vm(
        self,
        scope: str,
        name: str,
        *,
        by: str,
        why: str = "",
        force: bool = False,
        idempotency_key: IdempotencyKey | None = None,
    ) -> None:
        """Remove a VM. If it has open events this needs force, which removes it from them."""
        if await self._was_created_or_removed(scope, idempotency_key):
            return
        await self._idempotent.apply(
            scope,
            lambda value: rules.remove_vm(
                value, name, self._rule_context(), by=by, now=self._clock.now(), why=why, force=force
            ),
            idempotency_key,
        )

    async def is_repeated(self, idempotency_key: IdempotencyKey | None) -> bool:
        """Return whether the request was answered before, in any scope; the objects that it names may be gone."""
        view = self._idempotent.scope_of(idempotency_key)
        if view is not None:
            return self._has_seen_key(view.id, idempotency_key)
        return await self._idempotent.was_created_or_removed(None, idempotency_key)

    async def _was_created_or_removed(self, scope: str, idempotency_key: IdempotencyKey | None) -> bool:
        """Return whether the request has created or removed this scope, and not another one of the same name."""
        return idempotency_key is not None and await self._idempotent.was_created_or_removed(scope, idempotency_key)

    def _has_seen_key(self, scope: str, idempotency_key: IdempotencyKey | None) -> bool:
        """Return whether the scope has answered the request, so that its addresses need not be checked again."""
        present, _ = self._replica.newest(scope)
        now = self._clock.now()
        return (
            idempotency_key is not None
            and present is not None
            and is_repeated_request(present.seen_keys, idempotency_key, now=now)
        )
