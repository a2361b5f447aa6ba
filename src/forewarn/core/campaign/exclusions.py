"""Find exclusions of a selection that match nothing: such an exclusion may be misspelt."""

from collections.abc import Callable, Collection, Iterable

import msgspec

from forewarn.core.campaign.selection import NameMatcher, Selector, is_pattern, tags_of
from forewarn.core.campaign.snapshot import ScopeSnapshot, VmSnapshot
from forewarn.core.campaign.spec import Selection
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm

Matcher = Callable[[Collection[str]], bool]


class Exclusions:
    """Looks at scope after scope for the exclusions that have fitted nothing yet."""

    def __init__(self, selection: Selection) -> None:
        self._unmatched = {written: _matcher(*written) for written in all_exclusions(selection)}
        bare: dict[str, object] = {"exclude_scopes": (), "exclude_hosts": (), "exclude_vms": (), "exclude_tags": {}}
        self._selector = Selector(msgspec.structs.replace(selection, **bare))

    def match(self, scope: Scope | ScopeSnapshot) -> tuple[tuple[str, str], ...]:
        """Return those that fit VMs of this scope which would be selected without them, and fitted none before."""
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
    """Give each exclusion as it is written, with what it is of."""
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
    # A bare name is one of a VM, and a pattern of such names does not reach over the scope's.
    return lambda there: any(one in names for one in there if kind != "VM" or ("/" in one) == ("/" in name))
