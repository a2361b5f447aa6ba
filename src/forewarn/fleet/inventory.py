"""Scopes and VMs coming, changing and going, as operators ask for it. An address belongs to one VM of its network."""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from forewarn.clock import Clock
from forewarn.core import inventory as rules
from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.idempotency import IdempotencyKey, is_repeated_request
from forewarn.core.policy import RuleContext
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.vm import Traits, Vm
from forewarn.fleet.addresses import Addresses
from forewarn.fleet.answers import Answers
from forewarn.fleet.errors import ScopeExists
from forewarn.fleet.queue import Decision, Queues
from forewarn.fleet.replica import Replica


class Addressed(Exception):
    """A VM was given other addresses while its change waited for its turn: claim those."""


class Inventory:
    """The commands on the inventory. `by` is who asks, `once` the request's key: asking again changes nothing."""

    def __init__(
        self,
        scopes: Queues[Scope],
        replica: Replica,
        answers: Answers,
        clock: Clock,
        conditions: Callable[[], RuleContext],
    ) -> None:
        self.addresses = Addresses(replica)
        self._scopes = scopes
        self._replica = replica
        self._answers = answers
        self._clock = clock
        self._conditions = conditions

    def check_new(self, scope: str) -> None:
        """Refuse the name of a scope to come that another one has but for upper and lower case.

        A fleet file cannot have both, so what was exported could not be imported again.
        """
        if (other := self._replica.alike(scope)) is not None:
            raise ScopeExists(other)

    async def add_scope(self, scope: Scope, *, by: str, once: IdempotencyKey | None = None) -> None:
        """Bring a scope into being. Its addresses must be free."""

        def command(present: Scope | None) -> Decision[Scope, None]:
            if present is not None:
                self._check_made_by(present, once)
                return Decision(present, (), None)
            change = rules.create_scope(scope, by=by, now=self._clock.now(), idempotency_key=once)
            return Decision(change.scope, change.entries, None)

        self._answers.check(once, scope.id)
        if await self._is_done(scope.id, once):
            return
        present, _ = self._replica.newest(scope.id)
        if present is not None:
            self._check_made_by(present, once)
        else:
            with self.addresses.claimed(scope.id, scope.roster):
                await self._scopes.apply(scope.id, command)

    def _check_made_by(self, present: Scope, once: IdempotencyKey | None) -> None:
        """Refuse to make a scope that is there, unless it was this request that made it."""
        if once is None or not is_repeated_request(present.seen_keys, once, now=self._clock.now()):
            raise ScopeExists(present.id)

    async def change_scope(
        self,
        scope: str,
        *,
        by: str,
        traits: Callable[[Traits], Traits] | None = None,
        approval: ApprovalRule | None = None,
        auto_approve: tuple[EventType, ...] | None = None,
        once: IdempotencyKey | None = None,
    ) -> None:
        """Change what a scope gives to its VMs or asks of them; what is left out stays.

        `traits` makes the new ones of the newest, and must not do anything else.
        """
        await self._answers.apply(
            scope,
            lambda value: rules.change_scope(
                value,
                self._conditions(),
                by=by,
                now=self._clock.now(),
                traits=None if traits is None else traits(value.traits),
                approval=approval,
                auto_approve=auto_approve,
            ),
            once,
        )

    async def remove_scope(
        self, scope: str, *, by: str, why: str = "", force: bool = False, once: IdempotencyKey | None = None
    ) -> None:
        """Remove a scope with its VMs. Open events need force: Scheduled ones are canceled, Started ones given up."""
        if await self._is_done(scope, once):
            return
        await self._answers.apply(
            scope,
            lambda value: rules.remove_scope(value, by=by, now=self._clock.now(), why=why, force=force),
            once,
        )

    async def add_vm(self, scope: str, vm: Vm, *, by: str, once: IdempotencyKey | None = None) -> None:
        """Add a VM. Its addresses must be free."""
        if self._was_answered(scope, once):
            return
        with self.addresses.claimed(scope, [vm]):
            await self._answers.apply(scope, lambda value: rules.add_vm(value, vm, by=by, now=self._clock.now()), once)

    async def change_vm(
        self, scope: str, name: str, change: Callable[[Vm], Vm], *, by: str, once: IdempotencyKey | None = None
    ) -> None:
        """Change a VM: `change` makes the new one of the newest, and must not do anything else."""
        if self._was_answered(scope, once):
            return
        is_changed = False
        while not is_changed:
            wanted = change(self._replica.scope(scope).vm(name))
            with suppress(Addressed):
                await self._change_vm(scope, name, change, wanted, by=by, once=once)
                is_changed = True

    async def _change_vm(
        self, scope: str, name: str, change: Callable[[Vm], Vm], wanted: Vm, *, by: str, once: IdempotencyKey | None
    ) -> None:
        def rule(value: Scope) -> Change[None]:
            old = value.vm(name)
            new = msgspec.structs.replace(change(old), name=old.name)
            if new.addresses != wanted.addresses:
                raise Addressed
            return rules.change_vm(value, new, self._conditions(), by=by, now=self._clock.now())

        with self.addresses.claimed(scope, [wanted]):
            await self._answers.apply(scope, rule, once)

    async def remove_vm(
        self, scope: str, name: str, *, by: str, why: str = "", force: bool = False, once: IdempotencyKey | None = None
    ) -> None:
        """Remove a VM. With open events only by force, which takes it out of them."""
        if await self._is_done(scope, once):
            return
        await self._answers.apply(
            scope,
            lambda value: rules.remove_vm(
                value, name, self._conditions(), by=by, now=self._clock.now(), why=why, force=force
            ),
            once,
        )

    async def was_asked(self, once: IdempotencyKey | None) -> bool:
        """Tell whether the request was answered before, wherever that was: what it names may be gone since."""
        home = self._answers.home(once)
        if home is not None:
            return self._was_answered(home.id, once)
        return await self._answers.began_or_ended(None, once)

    async def _is_done(self, scope: str, once: IdempotencyKey | None) -> bool:
        """Tell whether the request has begun or ended a life of the scope: another life is none of its business."""
        return once is not None and await self._answers.began_or_ended(scope, once)

    def _was_answered(self, scope: str, once: IdempotencyKey | None) -> bool:
        """Tell whether the scope has answered the request; its addresses need not be looked at again."""
        present, _ = self._replica.newest(scope)
        now = self._clock.now()
        return once is not None and present is not None and is_repeated_request(present.seen_keys, once, now=now)
