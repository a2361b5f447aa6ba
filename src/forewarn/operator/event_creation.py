"""Event creation: select the VMs of a request, check the caller, and schedule the events, once per idempotency key."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec
from litestar.di import NamedDependency

from forewarn.api import v1
from forewarn.core.errors import Invalid
from forewarn.core.idempotency import IdempotencyKey, is_repeated_request
from forewarn.core.schedule import ScheduleRequest, events_of_request, request_of_key
from forewarn.fleet.errors import FleetError, HostNotFound, ScopeNotFound, VmNotFound
from forewarn.fleet.events import new_request_id
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep
from forewarn.operator.errors import HostNotAllowed
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import IdempotencyKeyDep
from forewarn.operator.state import AppState
from forewarn.operator.views.events import show_event

PAST_TOLERANCE = timedelta(seconds=60)
"""How far in the past not_before may be: the request took time to arrive. The event then starts at once."""

CreatedEvents = tuple[tuple[str, str], ...]
"""Pairs of scope and event."""


class EventCreation:
    """One request for events by one caller. The ids of its events are derived from `request_id`."""

    def __init__(self, fleet: Fleet, caller: Caller, idempotency_key: IdempotencyKey | None) -> None:
        self.by = caller.name
        self.request_id = new_request_id()
        self._fleet = fleet
        self._caller = caller
        self._idempotency_key = idempotency_key

    async def create_events(
        self,
        build_request: Callable[[tuple[str, ...]], ScheduleRequest],
        *,
        vms: Sequence[str] = (),
        host: str | None = None,
        scope: str | None = None,
        update_domain: int | None = None,
        at_once: bool = False,
        unannounced: bool = False,
    ) -> v1.ScheduleResponse:
        """Create events for the selected VMs. A repeated request gets the same response as before.

        This also holds if its VMs no longer exist, perhaps because the request removed them. Events that VMs will not
        hear of need `unannounced`.
        """
        try:
            names = self._select(vms=vms, host=host, scope=scope, update_domain=update_domain)
        except (Invalid, FleetError):
            if created := self._previously_created():
                return self._show(created)
            raise
        request = msgspec.structs.replace(build_request(names), at_once=at_once, unannounced=unannounced)
        return self._show(await self._schedule(request))

    async def delete_vm(self, data: v1.Operate) -> v1.ScheduleResponse:
        """Delete a VM, with an event if it has a terminate notice, else at once."""
        try:
            name = self._full_name(data.vm)
        except (VmNotFound, ScopeNotFound):  # the same request may have deleted it before
            created = self._previously_created()
            if not created and not await self._fleet.inventory.is_repeated(self._idempotency_key):
                raise
            return self._show(created)
        return self._show(
            await self._fleet.events.delete(
                name,
                request=self.request_id,
                by=self.by,
                why=data.reason,
                at_once=data.now,
                unannounced=data.unannounced,
                idempotency_key=self._idempotency_key,
            )
        )

    def _select(
        self, *, vms: Sequence[str], host: str | None, scope: str | None, update_domain: int | None
    ) -> tuple[str, ...]:
        if scope is not None:
            self._caller.check_scope(scope)
        names = [self._full_name(vm) for vm in self._existing_vms(vms)]
        if host is not None:
            self._check_host(host, is_alone=scope is None)
        return self._fleet.inventory.select(vms=names, host=host, scope=scope, update_domain=update_domain)

    def _check_host(self, host: str, *, is_alone: bool) -> None:
        """Report a host without VMs that the caller may see as not found.

        Without a scope, all VMs of the host are selected: refuse a host that also has VMs the caller may not see.
        """
        visible = {self._caller.can_see(view.id) for view, _ in self._fleet.replica.hosts().get(host, ())}
        if True not in visible:
            raise HostNotFound(host)
        if is_alone and False in visible:
            raise HostNotAllowed(self._caller.name, host, self._caller.scopes)

    def _full_name(self, vm: str) -> str:
        view, found = find_vm(self._fleet, self._caller, vm)
        return f"{view.id}/{found.name}"

    def _existing_vms(self, vms: Sequence[str]) -> Sequence[str]:
        """For a repeated request, drop VMs that no longer exist, unless none is left; else return all."""
        return [vm for vm in vms if self._exists(vm)] or vms if self._scopes_with_key() else vms

    def _exists(self, vm: str) -> bool:
        try:
            find_vm(self._fleet, self._caller, vm)
        except (VmNotFound, ScopeNotFound):
            return False
        return True

    async def _schedule(self, request: ScheduleRequest) -> CreatedEvents:
        self._check_future(request)
        return await self._fleet.events.schedule(request.with_key(self._idempotency_key))

    def _previously_created(self) -> CreatedEvents:
        """Return the events that an earlier request with the same key created."""
        now = self._fleet.clock.now()
        created: list[tuple[str, str]] = []
        for view in self._scopes_with_key():
            if (
                view.scope is not None
                and (asked := self._idempotency_key)
                and is_repeated_request(view.scope.seen_keys, asked, now=now)
            ):
                self._caller.check_scope(view.id)
                request = request_of_key(view.scope, asked.key, asked.caller)
                created += [(view.id, event) for event in events_of_request(view.scope, request)]
        return tuple(created)

    def _scopes_with_key(self) -> Sequence[ScopeView]:
        if self._idempotency_key is None:
            return ()
        return self._fleet.replica.views_with_key(
            self._idempotency_key.key, self._idempotency_key.caller, now=self._fleet.clock.now()
        )

    def _show(self, created: CreatedEvents) -> v1.ScheduleResponse:
        """Return the created events, and those of them that are still open: some end at once."""
        return v1.ScheduleResponse(
            created=tuple(v1.CreatedEvent(id=event, scope=scope) for scope, event in created),
            events=tuple(self._open_events(created)),
        )

    def _open_events(self, created: CreatedEvents) -> Iterator[v1.Event]:
        now = self._fleet.clock.now()
        for scope_id, event_id in created:
            with suppress(ScopeNotFound):
                scope = self._fleet.replica.scope(scope_id)
                if (event := scope.find_event(event_id)) is not None:
                    yield show_event(self._fleet, scope, event, now=now)

    def _check_future(self, request: ScheduleRequest) -> None:
        """Refuse a start in the past, except for a repeated request, which gets its earlier response."""
        now = self._fleet.clock.now()
        if request.not_before is None or request.not_before >= now - PAST_TOLERANCE or self._scopes_with_key():
            return
        raise Invalid(
            f"not_before {request.not_before:%Y-%m-%d %H:%M:%SZ} is in the past: the service's time is "
            f"{now:%Y-%m-%d %H:%M:%SZ}; to start at once, use now"
        )


EventCreationDep = NamedDependency[EventCreation]
"""The event creation of a request, as handlers take it: `event_creation: EventCreationDep`."""


async def provide_event_creation(
    state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> EventCreation:
    """Provide the event creation of the request to handlers."""
    return EventCreation(state.fleet, caller, idempotency_key)
