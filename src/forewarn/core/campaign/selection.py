"""Which VMs a campaign is for: one answer for the plan over a fleet, and for a VM when its wave is announced."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate

from forewarn.core.campaign.spec import Selection
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm


class Chooser:
    """A selection made ready to be asked of many VMs."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._scopes = _one_of(selection.scopes)
        self._hosts = _one_of(selection.hosts)
        self._no_scopes = _one_of(selection.exclude_scopes)
        self._no_hosts = _one_of(selection.exclude_hosts)
        self._no_names = _one_of(name.casefold() for name in selection.exclude_vms if "/" not in name)
        self._no_full_names = _one_of(name.casefold() for name in selection.exclude_vms if "/" in name)

    def chosen(self, scope: Scope) -> tuple[Vm, ...]:
        """Return the VMs of a scope that are meant."""
        if self._no_scopes is not None and self._no_scopes.match(scope.id):
            return ()
        whole = self._selection.all or (self._scopes is not None and bool(self._scopes.match(scope.id)))
        if not whole and self._hosts is None and not self._selection.tags:
            return ()
        return tuple(vm for vm in scope.roster if self._is_meant(scope, vm, whole=whole))

    def selects(self, scope: Scope, vm: Vm) -> bool:
        """Tell whether a VM is meant."""
        if self._no_scopes is not None and self._no_scopes.match(scope.id):
            return False
        whole = self._selection.all or (self._scopes is not None and bool(self._scopes.match(scope.id)))
        return self._is_meant(scope, vm, whole=whole)

    def _is_meant(self, scope: Scope, vm: Vm, *, whole: bool) -> bool:
        return (whole or self._is_named(scope, vm)) and not self._is_excluded(scope, vm)

    def _is_named(self, scope: Scope, vm: Vm) -> bool:
        if self._hosts is not None and vm.host is not None and self._hosts.match(vm.host):
            return True
        wanted = self._selection.tags
        return bool(wanted) and wanted.items() <= _tags(scope, vm).items()

    def _is_excluded(self, scope: Scope, vm: Vm) -> bool:
        if self._no_hosts is not None and vm.host is not None and self._no_hosts.match(vm.host):
            return True
        if self._no_names is not None and self._no_names.match(vm.name.casefold()):
            return True
        if self._no_full_names is not None and self._no_full_names.match(f"{scope.id}/{vm.name}".casefold()):
            return True
        unwanted = self._selection.exclude_tags
        return bool(unwanted) and not unwanted.items().isdisjoint(_tags(scope, vm).items())


def selects(selection: Selection, scope: Scope, vm: Vm) -> bool:
    """Tell whether the selection means this VM of the scope."""
    return Chooser(selection).selects(scope, vm)


def is_pattern(name: str) -> bool:
    """Tell whether a name stands for any number of names."""
    return not {"*", "?", "["}.isdisjoint(name)


def _tags(scope: Scope, vm: Vm) -> Mapping[str, str]:
    """Return the tags that hold for the VM: those of its scope and its own, as `Traits.over` joins them."""
    own, common = vm.traits.tags, scope.traits.tags
    if not own or not common:
        return own or common or {}
    return common | own


def _one_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one expression for all patterns; None where there are none."""
    parts = [translate(pattern) for pattern in patterns]
    return re.compile("|".join(parts)) if parts else None
