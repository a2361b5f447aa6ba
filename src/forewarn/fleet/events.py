"""Commands on events: schedule, approve, cancel, retry, resolve; and delete a VM."""

import asyncio
import uuid
from collections.abc import Callable, Sequence

from forewarn.clock import Clock
from forewarn.core import impact_lifecycle, operations
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.errors import NotAnnounced
from forewarn.core.event import Event
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ScheduleRequest, join_refusals, schedule
from forewarn.core.scope import Scope
from forewarn.fleet.errors import EventNotFound, ScopeNotFound, VmNotFound
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.targets import collect_scheduled, split_by_scope


def new_request_id() -> str:
    """Return a new random id for a request."""
    return str(uuid.uuid4()).upper()


class Events:
    """The commands on events. `by` is the caller; a repeated `idempotency_key` changes nothing."""

    def __init__(self, scopes: Scopes, idempotent: IdempotentScopes) -> None:
        self._scopes = scopes
        self._idempotent = idempotent

    @property
    def _clock(self) -> Clock:
        return self._scopes.clock

    @property
    def _replica(self) -> Replica:
        return self._scopes.replica

    @property
    def _rule_context(self) -> RuleContext:
        return self._scopes.rule_context

    def find(self, id_: str) -> tuple[ScopeView, Event]:
        """Find an open event in any scope."""
        found = self._replica.find_event(id_)
        if found is None:
            raise EventNotFound(id_)
        return found

    async def schedule(self, request: ScheduleRequest) -> tuple[tuple[str, str], ...]:
        """Create the events of a request in all scopes of its VMs, and return pairs of scope and event.

        All scopes are checked before the first one is changed. If one changes in the meantime and then refuses,
        PartialSchedule names the events that the others created.
        """
        requests = split_by_scope(self._replica, request, now=self._clock.now())
        unannounced: list[NotAnnounced] = []
        for scope, part in requests.items():
            try:
                self._schedule_rule(self._replica.scope(scope), part)
            except NotAnnounced as refusal:
                unannounced.append(refusal)
        if unannounced:
            raise join_refusals(unannounced)
        results = await asyncio.gather(
            *(self._schedule(scope, part) for scope, part in requests.items()), return_exceptions=True
        )
        return collect_scheduled(dict(zip(requests, results, strict=True)))

    async def _schedule(self, scope: str, request: ScheduleRequest) -> tuple[str, ...]:
        return await self._scopes.apply(scope, lambda value: self._schedule_rule(value, request))

    def _schedule_rule(self, scope: Scope, request: ScheduleRequest) -> Change[tuple[str, ...]]:
        poll_version = self._replica.view(scope.id).poll_version
        return schedule(scope, request, self._rule_context, now=self._clock.now(), poll_version=poll_version)

    async def approve(self, scope: str, vm: str, ids: Sequence[str], *, by: str | None = None) -> None:
        """Record a VM's approval of events of its own scope."""
        await self._scopes.apply(
            scope, lambda value: approve(value, vm, ids, self._rule_context, now=self._clock.now(), by=by)
        )

    async def cancel(
        self, event: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Cancel a Scheduled event."""
        await self._apply(
            event,
            lambda scope: operations.cancel(scope, event, self._rule_context, by=by, now=self._clock.now(), why=why),
            idempotency_key,
        )

    async def approve_for(
        self, event: str, vm: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Approve an event on behalf of a VM of its scope; the journal records who did, and why."""

        def rule(scope: Scope) -> Change[None]:
            name = bare_vm_name(scope.id, vm)
            return approve(scope, name, [event], self._rule_context, now=self._clock.now(), by=by, why=why)

        await self._apply(event, rule, idempotency_key)

    async def retry(
        self,
        event: str,
        *,
        vm: str | None = None,
        by: str,
        why: str = "",
        idempotency_key: IdempotencyKey | None = None,
    ) -> None:
        """Retry failed or unknown impacts: on one VM, or on all VMs that have one."""

        def rule(scope: Scope) -> Change[None]:
            name = None if vm is None else bare_vm_name(scope.id, vm)
            return impact_lifecycle.retry(scope, event, name, by=by, now=self._clock.now(), why=why)

        await self._apply(event, rule, idempotency_key)

    async def resolve(
        self,
        event: str,
        *,
        by: str,
        why: str,
        done: bool = False,
        vm: str | None = None,
        idempotency_key: IdempotencyKey | None = None,
    ) -> None:
        """End failed or unknown impacts of an event: as done after all, or as given up."""

        def rule(scope: Scope) -> Change[None]:
            name = None if vm is None else bare_vm_name(scope.id, vm)
            now = self._clock.now()
            return impact_lifecycle.resolve(
                scope, event, self._rule_context, by=by, why=why, now=now, done=done, vm=name
            )

        await self._apply(event, rule, idempotency_key)

    async def _apply(
        self, event: str, rule: Callable[[Scope], Change[None]], idempotency_key: IdempotencyKey | None
    ) -> None:
        """Apply a rule to the scope of an event; a repeated request is recognised even after the event has ended."""
        found = self._replica.find_event(event)
        view = found[0] if found is not None else self._idempotent.scope_of(idempotency_key)
        if view is not None:
            await self._idempotent.apply(view.id, rule, idempotency_key)
        elif not await self._idempotent.was_created_or_removed(None, idempotency_key):
            raise EventNotFound(event)

    async def delete(
        self,
        vm: str,
        *,
        request: str,
        by: str,
        why: str = "",
        at_once: bool = False,
        unannounced: bool = False,
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[tuple[str, str], ...]:
        """Delete a VM: at once, or with a Terminate event, returned with its scope, if it has a terminate profile."""
        answered_by = self._idempotent.scope_of(idempotency_key)
        try:
            view, found = self._replica.find(vm)
        except (VmNotFound, ScopeNotFound):
            if answered_by is None and await self._idempotent.was_created_or_removed(None, idempotency_key):
                return ()
            if answered_by is None:
                raise
            id_, name = answered_by.id, vm
        else:
            self._idempotent.check(idempotency_key, view.id)
            id_, name = view.id, found.name

        def rule(scope: Scope) -> Change[tuple[str, ...]]:
            return operations.delete(
                scope,
                name,
                self._rule_context,
                request=request,
                by=by,
                now=self._clock.now(),
                why=why,
                at_once=at_once,
                unannounced=unannounced,
                poll_version=self._replica.view(scope.id).poll_version,
                idempotency_key=idempotency_key,
            )

        return await self._delete(id_, rule, idempotency_key)

    async def _delete(
        self, scope: str, rule: Callable[[Scope], Change[tuple[str, ...]]], idempotency_key: IdempotencyKey | None
    ) -> tuple[tuple[str, str], ...]:
        if await self._idempotent.was_created_or_removed(scope, idempotency_key):
            return ()
        try:
            events = await self._scopes.apply(scope, rule)
        except ScopeNotFound:
            if await self._idempotent.was_created_or_removed(scope, idempotency_key):
                return ()
            raise
        return tuple((scope, event) for event in events)


def bare_vm_name(scope: str, vm: str) -> str:
    """Return the bare name of a VM that must be in this scope, and may be given as `scope/name`."""
    named, slash, bare = vm.rpartition("/")
    if slash and named != scope:
        raise VmNotFound(f"{vm} in scope {scope}")
    return bare
