"""From a request to its events: which VMs are meant, whether the caller may, and what was made."""

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
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.access import AskedBy, Caller
from forewarn.operator.backstage import Backstage
from forewarn.operator.errors import HostForbidden
from forewarn.operator.finding import find_vm
from forewarn.operator.parameters import AskedOnce
from forewarn.operator.showing_events import show_event

JUST_NOW = timedelta(seconds=60)
"""A time that has passed by no more than this was the present when it was said, and means at once."""

Made = tuple[tuple[str, str], ...]
"""Pairs of scope and event."""


class Making:
    """One request for events, by one caller. `request` is the id from which those of its events are computed."""

    def __init__(self, fleet: Fleet, caller: Caller, once: IdempotencyKey | None) -> None:
        self.by = caller.name
        self.request = fleet.new_id()
        self._fleet = fleet
        self._caller = caller
        self._once = once

    async def events(
        self,
        ask_for: Callable[[tuple[str, ...]], ScheduleRequest],
        *,
        vms: Sequence[str] = (),
        host: str | None = None,
        scope: str | None = None,
        update_domain: int | None = None,
    ) -> v1.Scheduled:
        """Make events for the VMs that are meant. A request that was answered before gets the same answer.

        That is so although its VMs may have gone since, which it may itself have brought about.
        """
        try:
            names = self._select(vms=vms, host=host, scope=scope, update_domain=update_domain)
        except (Invalid, FleetError):
            if made := self._made_before():
                return self._show(made)
            raise
        return self._show(await self._schedule(ask_for(names)))

    async def deletion(self, vm: str, why: str) -> v1.Scheduled:
        """Delete a VM, at once or with an event."""
        try:
            name = self._full_name(vm)
        except (VmNotFound, ScopeNotFound):  # it may have gone by this very request
            made = self._made_before()
            if not made and not await self._fleet.inventory.is_repeated(self._once):
                raise
            return self._show(made)
        return self._show(
            await self._fleet.events.delete(name, request=self.request, by=self.by, why=why, idempotency_key=self._once)
        )

    def _select(
        self, *, vms: Sequence[str], host: str | None, scope: str | None, update_domain: int | None
    ) -> tuple[str, ...]:
        if scope is not None:
            self._caller.check(scope)
        names = [self._full_name(vm) for vm in self._still_there(vms)]
        found = self._fleet.select(vms=names, host=host, scope=scope, update_domain=update_domain)
        if host is not None:
            self._check_host(host, found)
        return found

    def _check_host(self, host: str, vms: Sequence[str]) -> None:
        """Refuse a host on which others have VMs; one on which only others have some is none of the caller's."""
        seen = {self._caller.sees(vm.rpartition("/")[0]) for vm in vms}
        if True not in seen:
            raise HostNotFound(host)
        if False in seen:
            raise HostForbidden(self._caller.name, host, self._caller.scopes)

    def _full_name(self, vm: str) -> str:
        view, found = find_vm(self._fleet, self._caller, vm)
        return f"{view.id}/{found.name}"

    def _still_there(self, vms: Sequence[str]) -> Sequence[str]:
        """Leave out VMs that have gone since the request was first made; if all have, or it is new, leave out none."""
        return [vm for vm in vms if self._is_there(vm)] or vms if self._answered() else vms

    def _is_there(self, vm: str) -> bool:
        try:
            find_vm(self._fleet, self._caller, vm)
        except (VmNotFound, ScopeNotFound):
            return False
        return True

    async def _schedule(self, ask: ScheduleRequest) -> Made:
        self._check_future(ask)
        if self._once is not None:
            ask = msgspec.structs.replace(ask, key=self._once.key, digest=self._once.digest)
        return await self._fleet.schedule(ask)

    def _made_before(self) -> Made:
        """Return what the same request made, where it has been answered before."""
        now = self._fleet.clock.now()
        made: list[tuple[str, str]] = []
        for view in self._answered():
            if view.scope is not None and self._once and is_repeated_request(view.scope.seen_keys, self._once, now=now):
                self._caller.check(view.id)
                made += [
                    (view.id, event)
                    for event in events_of_request(view.scope, request_of_key(view.scope, self._once.key))
                ]
        return tuple(made)

    def _answered(self) -> Sequence[ScopeView]:
        if self._once is None:
            return ()
        return self._fleet.replica.views_with_key(self._once.key, now=self._fleet.clock.now())

    def _show(self, made: Made) -> v1.Scheduled:
        """Show what was made, and what of it is still open: what takes no time has gone again."""
        return v1.Scheduled(
            made=tuple(v1.Made(id=event, scope=scope) for scope, event in made), events=tuple(self._open(made))
        )

    def _open(self, made: Made) -> Iterator[v1.Event]:
        now = self._fleet.clock.now()
        for scope_id, event_id in made:
            with suppress(ScopeNotFound):
                scope = self._fleet.replica.scope(scope_id)
                if (event := scope.find_event(event_id)) is not None:
                    yield show_event(self._fleet, scope, event, now=now)

    def _check_future(self, ask: ScheduleRequest) -> None:
        """Refuse a time that has passed, which is hardly meant; but a repeated request is answered as it was then."""
        now = self._fleet.clock.now()
        if ask.not_before is None or ask.not_before >= now - JUST_NOW or self._answered():
            return
        raise Invalid(
            f"not_before {ask.not_before:%Y-%m-%d %H:%M:%SZ} is in the past: the service's clock says "
            f"{now:%Y-%m-%d %H:%M:%SZ}; to start at once, give a notice of 0s"
        )


ToMake = NamedDependency[Making]
"""What makes the events of a request, as handlers take it: `making: ToMake`."""


async def provide_making(state: Backstage, caller: AskedBy, once: AskedOnce) -> Making:
    """Give handlers what makes the events of the request."""
    return Making(state.fleet, caller, once)
