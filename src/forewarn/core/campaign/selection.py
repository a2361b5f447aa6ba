"""Select the VMs of a campaign: the same selector for the plan of a fleet and for a wave when it is announced.

An exclusion that matches nothing may be misspelt: `Exclusions` finds those.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import translate
from typing import overload

import msgspec

from forewarn.core.campaign.snapshot import ScopeSnapshot, VmSnapshot
from forewarn.core.campaign.spec import Selection
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm

Matcher = Callable[[Collection[str]], bool]


class NameMatcher:
    """Names and patterns, compiled for comparison with many names."""

    def __init__(self, written: Iterable[str]) -> None:
        names = tuple(written)
        patterns = [translate(name) for name in names if is_pattern(name)]
        self._exact = frozenset(name for name in names if not is_pattern(name))
        self._patterns = re.compile("|".join(patterns)) if patterns else None

    def __bool__(self) -> bool:
        return bool(self._exact) or self._patterns is not None

    def __contains__(self, name: str) -> bool:
        return name in self._exact or (self._patterns is not None and self._patterns.match(name) is not None)


class Selector:
    """A selection, compiled for evaluation on many VMs."""

    def __init__(self, selection: Selection) -> None:
        self._all, self._tags, self._no_tags = selection.all, selection.tags.items(), selection.exclude_tags.items()
        self._scopes, self._hosts = NameMatcher(selection.scopes), NameMatcher(selection.hosts)
        self._no_scopes, self._no_hosts = NameMatcher(selection.exclude_scopes), NameMatcher(selection.exclude_hosts)
        folded = [name.casefold() for name in selection.exclude_vms]
        self._no_names = NameMatcher(name for name in folded if "/" not in name)
        self._no_full_names = NameMatcher(name for name in folded if "/" in name)
        self._excludes = any((self._no_hosts, self._no_names, self._no_full_names, self._no_tags))

    @overload
    def select(self, scope: Scope) -> tuple[Vm, ...]: ...

    @overload
    def select(self, scope: ScopeSnapshot) -> tuple[VmSnapshot, ...]: ...

    def select(self, scope: Scope | ScopeSnapshot) -> tuple[Vm | VmSnapshot, ...]:
        """Return the selected VMs of a scope."""
        if scope.id in self._no_scopes:
            return ()
        whole = self._all or scope.id in self._scopes
        if not whole and not self._hosts and not self._tags:
            return ()
        vms: Iterable[Vm | VmSnapshot] = scope.roster.vms
        return tuple([vm for vm in vms if (whole or self._is_named(scope, vm)) and not self._is_excluded(scope, vm)])

    def is_selected(self, scope: Scope | ScopeSnapshot, vm: Vm | VmSnapshot) -> bool:
        """Return whether a VM is selected."""
        if scope.id in self._no_scopes:
            return False
        named = self._all or scope.id in self._scopes or self._is_named(scope, vm)
        return named and not self._is_excluded(scope, vm)

    def _is_named(self, scope: Scope | ScopeSnapshot, vm: Vm | VmSnapshot) -> bool:
        if self._hosts and vm.host is not None and vm.host in self._hosts:
            return True
        return bool(self._tags) and self._tags <= tags_of(scope, vm).items()

    def _is_excluded(self, scope: Scope | ScopeSnapshot, vm: Vm | VmSnapshot) -> bool:
        return self._excludes and (
            (bool(self._no_hosts) and vm.host is not None and vm.host in self._no_hosts)
            or (bool(self._no_names) and vm.name.casefold() in self._no_names)
            or (bool(self._no_full_names) and f"{scope.id}/{vm.name}".casefold() in self._no_full_names)
            or (bool(self._no_tags) and not self._no_tags.isdisjoint(tags_of(scope, vm).items()))
        )


def is_selected(selection: Selection, scope: Scope, vm: Vm) -> bool:
    """Return whether the selection matches this VM of the scope."""
    return Selector(selection).is_selected(scope, vm)


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern."""
    return not {"*", "?", "["}.isdisjoint(name)


def tags_of(scope: Scope | ScopeSnapshot, vm: Vm | VmSnapshot) -> Mapping[str, str]:
    """Return the effective tags of the VM: its scope's and its own, merged as by `Traits.with_defaults`."""
    own, common = vm.traits.tags, scope.traits.tags
    if not own or not common:
        return own or common or {}
    return common | own


class Exclusions:
    """Searches scope after scope for exclusions that have matched nothing yet."""

    def __init__(self, selection: Selection) -> None:
        self._unmatched = {written: _matcher(*written) for written in all_exclusions(selection)}
        bare: dict[str, object] = {"exclude_scopes": (), "exclude_hosts": (), "exclude_vms": (), "exclude_tags": {}}
        self._selector = Selector(msgspec.structs.replace(selection, **bare))

    def match(self, scope: Scope | ScopeSnapshot) -> tuple[tuple[str, str], ...]:
        """Return the exclusions that match otherwise selected VMs of this scope, and matched none before."""
        if not self._unmatched:
            return ()
        named: tuple[Vm | VmSnapshot, ...] = self._selector.select(scope)
        if not named:
            return ()
        kinds = {kind for kind, _ in self._unmatched}
        there = {kind: _names(kind, scope, named) for kind in kinds}
        found = tuple([written for written, fits in self._unmatched.items() if fits(there[written[0]])])
        for written in found:
            del self._unmatched[written]
        return found


def all_exclusions(selection: Selection) -> Iterable[tuple[str, str]]:
    """Yield each exclusion as written, with its kind."""
    yield from (("scope", name) for name in selection.exclude_scopes)
    yield from (("host", name) for name in selection.exclude_hosts)
    yield from (("VM", name) for name in selection.exclude_vms)
    yield from (("tag", f"{name}={value}") for name, value in selection.exclude_tags.items())


def _names(kind: str, scope: Scope | ScopeSnapshot, vms: Iterable[Vm | VmSnapshot]) -> set[str]:
    if kind == "scope":
        return {scope.id}
    if kind == "host":
        return {vm.host for vm in vms if vm.host is not None}
    if kind == "VM":
        names = {vm.name.casefold() for vm in vms}
        return names | {f"{scope.id}/{name}".casefold() for name in names}
    return {f"{name}={value}" for vm in vms for name, value in tags_of(scope, vm).items()}


def _matcher(kind: str, written: str) -> Matcher:
    name = written.casefold() if kind == "VM" else written
    if kind == "tag" or not is_pattern(name):
        return lambda there: name in there
    names = NameMatcher((name,))
    # A bare name is the name of a VM; a pattern of such names does not match across the '/' after a scope's name.
    return lambda there: any(one in names for one in there if kind != "VM" or ("/" in one) == ("/" in name))
