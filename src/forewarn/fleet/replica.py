"""In-memory replica: every scope as last saved, with indexes by VM name, address, host, event and idempotency key.

All reads use it and never wait. It has only saved values, so no reader sees a change that could still be lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from forewarn.core.enablement import SEEN_SAVE_INTERVAL
from forewarn.core.event import Event
from forewarn.core.scope import Scope
from forewarn.core.vm import VM_ID, Roster, Vm, folded_id
from forewarn.fleet.errors import AmbiguousVm, ScopeNotFound, VmNotFound
from forewarn.fleet.main_loop import Observer, RecordChange

FAR_PAST = datetime.min.replace(tzinfo=UTC)


class ScopeView:
    """One scope in the replica. There is only one view per id while anything refers to it.

    `prepared` belongs to the guest endpoint: its content is valid for this document only, and it is replaced when epoch
    or incarnation change. Before `fresh_until` a request changes nothing that is saved. `poll_version` is the newest
    api-version with which a VM of the scope has polled, in this process and while the scope was enabled. `polled_at`
    has the time of each VM's last poll in this process, to the second.
    """

    __slots__ = (
        "__weakref__",
        "_waiters",
        "credited_at",
        "fresh_until",
        "id",
        "poll_version",
        "polled_at",
        "prepared",
        "revision",
        "scope",
        "seen_at",
    )

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.scope: Scope | None = None
        self.revision = 0
        self.seen_at: datetime | None = None
        self.credited_at: datetime | None = None
        self.fresh_until = FAR_PAST
        self.poll_version: str | None = None
        self.polled_at: dict[str, datetime] = {}
        self.prepared: dict[object, object] = {}
        self._waiters: dict[Callable[[], None], None] | None = None

    @property
    def alive_at(self) -> datetime | None:
        """The time of the scope's last request, or the latest time of one that may not have been saved."""
        seen_at, credited_at = self.seen_at, self.credited_at
        if seen_at is None or (credited_at is not None and credited_at > seen_at):
            return credited_at
        return seen_at

    @property
    def roster(self) -> Roster | None:
        """The VMs; the same object as long as no VM was added, changed or removed. None: the scope was removed."""
        return self.scope.roster if self.scope is not None else None

    def wait_for_change(self, callback: Callable[[], None]) -> None:
        """Call back once, when the document has changed or the scope was removed."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[callback] = None

    @property
    def has_waiters(self) -> bool:
        """Whether a VM of the scope is in a long poll."""
        return bool(self._waiters)

    def cancel_wait(self, callback: Callable[[], None]) -> None:
        """Do not call back."""
        if self._waiters is not None:
            self._waiters.pop(callback, None)

    def update(self, scope: Scope | None, revision: int) -> None:
        """Store a saved value."""
        old, self.scope, self.revision = self.scope, scope, revision
        if self.polled_at and (scope is None or old is None or scope.roster is not old.roster):
            names = {vm.name for vm in self.roster or ()}
            self.polled_at = {name: at for name, at in self.polled_at.items() if name in names}
        seen_at = scope.seen_at if scope is not None and scope.enabled else None
        self.fresh_until = seen_at + SEEN_SAVE_INTERVAL if seen_at is not None else FAR_PAST
        if scope is None or not scope.enabled:
            self.poll_version = None
        if is_new_document(old, scope):
            self.prepared = {}

    def wake_waiters(self) -> None:
        """Call back all long polls."""
        waiters, self._waiters = self._waiters, None
        for callback in waiters or ():
            callback()


def is_new_document(before: Scope | None, after: Scope | None) -> bool:
    """Return whether the document of the scope's VMs has changed."""
    return before is None or after is None or (before.epoch, before.incarnation) != (after.epoch, after.incarnation)


class AddressIndex(dict[str, ScopeView | list[ScopeView]]):
    """The owners of each address of a network. The content is unchanged as long as `changes` is the same number."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes = 0

    def add(self, ip: str, view: ScopeView) -> None:
        """Add an address of a scope's VM; it may already belong to another one."""
        self.changes += 1
        if ip in self:
            _add(self, ip, view)
        else:  # nearly always, 200,000 times at a start with 100,000 VMs
            self[ip] = view

    def drop(self, ip: str, view: ScopeView) -> None:
        """Remove it."""
        self.changes += 1
        _drop(self, ip, view)


class Replica:
    """All views, by scope, by VM name and by address."""

    def __init__(self) -> None:
        self._views: dict[str, ScopeView] = {}
        self._gone: WeakValueDictionary[str, ScopeView] = WeakValueDictionary()
        """Views without a scope that may still be referenced: a scope with the same id may be created again."""
        self._by_folded_id: dict[str, ScopeView | list[ScopeView]] = {}
        self._names: dict[str, ScopeView | list[ScopeView]] = {}
        self._vm_ids = AddressIndex()
        self._address_indexes = {VM_ID: self._vm_ids}
        self._hosts: dict[str, dict[ScopeView, int]] = {}
        self._events: dict[str, ScopeView] = {}
        self._keys: dict[str, ScopeView | list[ScopeView]] = {}
        self.vms = 0

    def update(self, id_: str, scope: Scope | None, revision: int) -> None:
        """Store a saved value, unless a newer one is known."""
        view = self.get_or_create_view(id_)
        if revision <= view.revision:
            return
        self._views[id_] = view
        self._gone.pop(id_, None)
        roster = scope.roster if scope is not None else None
        if (view.scope is None) != (scope is None):
            (_drop if scope is None else _add)(self._by_folded_id, id_.casefold(), view)
        if view.roster is not roster:
            self._index(view, view.roster, roster)
        self._index_events(view, scope)
        self._index_keys(view, scope)
        view.update(scope, revision)

    def view(self, scope: str) -> ScopeView:
        """Return the view of a scope."""
        view = self._views.get(scope)
        if view is None or view.scope is None:
            raise ScopeNotFound(scope)
        return view

    def get_or_create_view(self, id_: str) -> ScopeView:
        """Return the view of a scope, whether it exists, existed, or may exist later."""
        view = self._views.get(id_) or self._gone.get(id_)
        if view is None:
            view = self._gone[id_] = ScopeView(id_)
        return view

    def forget(self, id_: str, revision: int) -> None:
        """Remove a scope that was deleted at this revision; every later value of it is newer."""
        view = self._views.get(id_)
        if view is not None and view.scope is None and view.revision <= revision:
            self._gone[id_] = self._views.pop(id_)

    def scope(self, id_: str) -> Scope:
        """Return a scope as last saved."""
        scope, _ = self.newest(id_)
        if scope is None:
            raise ScopeNotFound(id_)
        return scope

    def newest(self, id_: str) -> tuple[Scope | None, int | None]:
        """Return a scope as last saved and its revision; None and None if it does not exist."""
        view = self._views.get(id_)
        return (None, None) if view is None or view.scope is None else (view.scope, view.revision)

    def find_other_case(self, id_: str) -> str | None:
        """Return the id of a scope that differs from this one only in case; None if there is none."""
        return next(
            (view.id for view in _as_unique_list(self._by_folded_id.get(id_.casefold())) if view.id != id_), None
        )

    def is_newer(self, id_: str, revision: int) -> bool:
        """Return whether the revision is not known here yet."""
        view = self._views.get(id_)
        return view is None or revision > view.revision

    def views(self) -> Iterator[ScopeView]:
        """Return every view that has a scope, in order of their ids' first appearance."""
        return (view for view in self._views.values() if view.scope is not None)

    def find(self, name: str) -> tuple[ScopeView, Vm]:
        """Find a VM by `scope/name`, or by its bare name if that is unambiguous."""
        scope, slash, bare = name.rpartition("/")
        views = [self.view(scope)] if slash else _as_unique_list(self._names.get(bare.casefold()))
        found = [(view, vm) for view in views if view.roster and (vm := view.roster.find(bare))]
        if not found:
            raise VmNotFound(name)
        if len(found) > 1:
            raise AmbiguousVm(name, tuple(f"{view.id}/{vm.name}" for view, vm in found))
        return found[0]

    def find_by_address(self, network: str, ip: str) -> tuple[ScopeView, Vm] | None:
        """Find the VM with this address; None if there is none, or more than one."""
        claims = self.claims(network, ip)
        return claims[0] if len(claims) == 1 else None

    def claims(self, network: str, ip: str, *, except_scope: str | None = None) -> list[tuple[ScopeView, Vm]]:
        """Return every VM with this address, or with this id in the network VM_ID; more than one is an error."""
        views = _as_unique_list(self._address_indexes[network].get(ip)) if network in self._address_indexes else []
        return [
            (view, vm)
            for view in views
            if view.id != except_scope
            for vm in view.roster or ()
            if _has_key(vm, network, ip)
        ]

    def address_index(self, network: str) -> AddressIndex:
        """Return the live index of a network's addresses; compare its `changes` to detect a change quickly."""
        owners = self._address_indexes.get(network)
        if owners is None:
            owners = self._address_indexes[network] = AddressIndex()
        return owners

    def find_event(self, id_: str) -> tuple[ScopeView, Event] | None:
        """Find an open event by its id, in any case."""
        view = self._events.get(id_.upper())
        event = view.scope.find_event(id_) if view is not None and view.scope is not None else None
        return None if view is None or event is None else (view, event)

    def views_with_events(self) -> list[ScopeView]:
        """Return the views of the scopes that have open events."""
        return list(dict.fromkeys(self._events.values()))

    def views_with_key(self, key: str, caller: str, *, now: datetime) -> list[ScopeView]:
        """Return the views of the scopes that have answered a request of this caller with this key."""
        views = _as_unique_list(self._keys.get(key))
        return [view for view in views if view.scope is not None and view.scope.has_seen_key(key, caller, now=now)]

    def hosts(self) -> Mapping[str, Sequence[tuple[ScopeView, Vm]]]:
        """Return the hosts with their VMs, as a live view."""
        return HostIndex(self._hosts)

    def _index_events(self, view: ScopeView, scope: Scope | None) -> None:
        before = view.scope.events if view.scope is not None else ()
        after = scope.events if scope is not None else ()
        if before is not after:
            for event in before:
                self._events.pop(event.id, None)
            self._events |= {event.id: view for event in after}

    def _index_keys(self, view: ScopeView, scope: Scope | None) -> None:
        before = view.scope.seen_keys if view.scope is not None else ()
        after = scope.seen_keys if scope is not None else ()
        if before is after:
            return
        old, new = {item.key for item in before}, {item.key for item in after}
        for key in old - new:
            _drop(self._keys, key, view)
        for key in new - old:
            _add(self._keys, key, view)

    def _index(self, view: ScopeView, old: Roster | None, new: Roster | None) -> None:
        before = {vm.name: vm for vm in old or ()}
        after = {vm.name: vm for vm in new or ()}
        for name, vm in before.items():
            if name not in after:
                self._drop(view, vm)
        for name, vm in after.items():
            known = before.get(name)
            if known is None:
                self._add(view, vm)
            elif known != vm:
                self._change(view, known, vm)
        self.vms += len(after) - len(before)

    def _add(self, view: ScopeView, vm: Vm) -> None:
        _add(self._names, vm.name.casefold(), view)
        self._add_to_host(view, vm)
        self._vm_ids.add(folded_id(vm), view)
        self._add_addresses(view, vm)

    def _drop(self, view: ScopeView, vm: Vm) -> None:
        _drop(self._names, vm.name.casefold(), view)
        self._drop_from_host(view, vm)
        self._vm_ids.drop(folded_id(vm), view)
        self._drop_addresses(view, vm)

    def _change(self, view: ScopeView, old: Vm, new: Vm) -> None:
        """Replace only the keys that differ: a dictionary of 200,000 keys is rebuilt after many replacements."""
        if old.host != new.host:
            self._drop_from_host(view, old)
            self._add_to_host(view, new)
        if old.vm_id != new.vm_id:
            self._vm_ids.drop(folded_id(old), view)
            self._vm_ids.add(folded_id(new), view)
        if old.addresses != new.addresses:
            self._drop_addresses(view, old)
            self._add_addresses(view, new)

    def _add_addresses(self, view: ScopeView, vm: Vm) -> None:
        for address in vm.addresses:
            self.address_index(address.network).add(address.ip, view)

    def _drop_addresses(self, view: ScopeView, vm: Vm) -> None:
        for address in vm.addresses:
            self.address_index(address.network).drop(address.ip, view)

    def _add_to_host(self, view: ScopeView, vm: Vm) -> None:
        if vm.host is not None:
            views = self._hosts.get(vm.host)
            if views is None:
                views = self._hosts[vm.host] = {}
            views[view] = views.get(view, 0) + 1

    def _drop_from_host(self, view: ScopeView, vm: Vm) -> None:
        if vm.host is None:
            return
        views = self._hosts[vm.host]
        views[view] -= 1
        if not views[view]:
            del views[view]
        if not views:
            del self._hosts[vm.host]


class RosterObservers:
    """Passes on only changes of VMs, and scopes that are created or removed: most changes are about events."""

    def __init__(self) -> None:
        self.observers: list[Observer[Scope]] = []
        """In the order in which they get a change."""

    def observe(self, change: RecordChange[Scope]) -> None:
        """Call the observers if the roster is another object."""
        before, after = change.before, change.after
        if before is None or after is None or before.roster is not after.roster:
            for observer in self.observers:
                observer(change)


class LongPollObserver:
    """Wakes guests in long polls. It is the last observer (`Scopes`): everything else is done when they poll again."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def observe(self, change: RecordChange[Scope]) -> None:
        """Wake them if the document has changed."""
        if is_new_document(change.before, change.after):
            self._replica.get_or_create_view(change.id).wake_waiters()


class HostIndex(Mapping[str, Sequence[tuple[ScopeView, Vm]]]):
    """The hosts, derived from their VMs."""

    def __init__(self, views: Mapping[str, Mapping[ScopeView, int]]) -> None:
        self._views = views

    def __getitem__(self, host: str) -> list[tuple[ScopeView, Vm]]:
        """Return the VMs on a host."""
        return [(view, vm) for view in self._views[host] for vm in view.roster or () if vm.host == host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, host: object) -> bool:
        return host in self._views


def _has_key(vm: Vm, network: str, ip: str) -> bool:
    """Return whether the VM has this unique key; faster than all keys of it (`core.vm.unique_keys`)."""
    if network == VM_ID:
        return vm.vm_id == ip or folded_id(vm) == ip
    return any(address.ip == ip and address.network == network for address in vm.addresses)


def _as_unique_list(value: ScopeView | list[ScopeView] | None) -> list[ScopeView]:
    if value is None:
        return []
    return list(dict.fromkeys(value)) if isinstance(value, list) else [value]


def _add(index: dict[str, ScopeView | list[ScopeView]], key: str, view: ScopeView) -> None:
    """Add a view to a key; a list, which needs more memory, is created only for keys with several views."""
    index[key] = [*_as_list(index[key]), view] if key in index else view


def _drop(index: dict[str, ScopeView | list[ScopeView]], key: str, view: ScopeView) -> None:
    left = _as_list(index.pop(key, []))
    if view in left:
        left.remove(view)
    if left:
        index[key] = left[0] if len(left) == 1 else left


def _as_list(value: ScopeView | list[ScopeView]) -> list[ScopeView]:
    return list(value) if isinstance(value, list) else [value]
