"""Which VMs are meant: by name, by host, by scope or by update domain."""

from collections.abc import Iterable, Sequence

from forewarn.core.errors import Invalid
from forewarn.core.vm import Vm
from forewarn.fleet.errors import NoSuchHost
from forewarn.fleet.replica import Replica, View


def select(
    replica: Replica,
    *,
    vms: Sequence[str] = (),
    host: str | None = None,
    scope: str | None = None,
    update_domain: int | None = None,
) -> tuple[str, ...]:
    """Return the full names of the VMs that are meant; refuse what names nothing, and what says too little or much."""
    if vms and (host is not None or scope is not None or update_domain is not None):
        raise Invalid("name VMs, or say a host, a scope or an update domain: not both")
    if vms:
        return tuple(dict.fromkeys(_full_name(*replica.find(name)) for name in vms))
    if host is None and scope is None:
        what = "VMs, a host or a scope" if update_domain is None else "the scope of the update domain"
        raise Invalid(f"say what is meant: {what}")
    if update_domain is not None and scope is None:
        raise Invalid("update domains are counted within a scope: name the scope, too")
    found = tuple(
        _full_name(view, vm)
        for view, vm in _candidates(replica, host, scope)
        if update_domain is None or vm.update_domain == update_domain
    )
    if not found:
        raise Invalid(_nothing(host, scope, update_domain))
    return found


def _candidates(replica: Replica, host: str | None, scope: str | None) -> Iterable[tuple[View, Vm]]:
    view = replica.view(scope) if scope is not None else None
    if host is None:
        return [(view, vm) for vm in view.roster or ()] if view is not None else []
    there = replica.hosts().get(host)
    if there is None:
        raise NoSuchHost(host)
    return [(found, vm) for found, vm in there if view is None or found is view]


def _full_name(view: View, vm: Vm) -> str:
    return f"{view.id}/{vm.name}"


def _nothing(host: str | None, scope: str | None, update_domain: int | None) -> str:
    where = [
        f"scope {scope}" if scope is not None else "",
        f"update domain {update_domain}" if update_domain is not None else "",
        f"host {host}" if host is not None else "",
    ]
    return f"there is no VM in {', '.join(filter(None, where))}"
