"""Targets of requests: select VMs by name, host, scope or update domain; split schedule requests by scope."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2s
from typing import TypeGuard

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.vm import Vm
from forewarn.fleet.errors import HostNotFound, OutcomeUnknown, PartialSchedule, ScopeNotFound, VmNotFound
from forewarn.fleet.replica import Replica, ScopeView

ScheduleResult = tuple[str, ...] | BaseException


def split_by_scope(replica: Replica, request: ScheduleRequest, *, now: datetime) -> dict[str, ScheduleRequest]:
    """Split a request by the scopes of its VMs, which may be given as `scope/name` or by unambiguous bare names.

    A scope that has answered a request with this key gets its part too, because its VMs may have left it since.
    """
    if request.key is not None and not request.digest:
        request = msgspec.structs.replace(request, digest=_digest(request))
    answered = _answered_parts(replica, request, now)
    names: dict[str, list[str]] = {}
    for name in request.vms:
        try:
            view, vm = replica.find(name)
        except (VmNotFound, ScopeNotFound):
            if not answered:
                raise
        else:
            names.setdefault(view.id, []).append(vm.name)
    return {scope: msgspec.structs.replace(request, vms=tuple(vms)) for scope, vms in names.items()} | answered


def _answered_parts(replica: Replica, request: ScheduleRequest, now: datetime) -> dict[str, ScheduleRequest]:
    if request.key is None:
        return {}
    return {view.id: request for view in replica.views_with_key(request.key, request.caller, now=now)}


def _digest(request: ScheduleRequest) -> str:
    """Return a digest of everything that a request asks for, without its caller, its id and its consent.

    A field that is newer than stored digests counts only if it is set.
    """
    fields = msgspec.structs.asdict(request) | {"id": "00000000-0000-0000-0000-000000000000", "by": "", "key": None}
    del fields["caller"], fields["unannounced"]
    if not fields["at_once"]:
        del fields["at_once"]
    return blake2s(msgspec.json.encode(fields), digest_size=8).hexdigest()


def collect_scheduled(results: Mapping[str, ScheduleResult]) -> tuple[tuple[str, str], ...]:
    """Return pairs of scope and event; if a scope failed, raise its error, with the events of the other scopes.

    An unknown outcome is raised first: then nothing can be said about the rest.
    """
    events = tuple((scope, event) for scope, each in results.items() if _is_scheduled(each) for event in each)
    errors = [each for each in results.values() if isinstance(each, BaseException)]
    if not errors:
        return events
    error = min(errors, key=lambda each: not isinstance(each, OutcomeUnknown))
    if not events or isinstance(error, OutcomeUnknown) or not isinstance(error, Exception):
        raise error
    raise PartialSchedule(tuple(f"{scope}/{event}" for scope, event in events), str(error)) from error


def _is_scheduled(each: ScheduleResult) -> TypeGuard[tuple[str, ...]]:
    return not isinstance(each, BaseException)


def select_vms(
    replica: Replica,
    *,
    vms: Sequence[str] = (),
    host: str | None = None,
    scope: str | None = None,
    update_domain: int | None = None,
) -> tuple[str, ...]:
    """Return the full names of the selected VMs; refuse a selection that matches nothing, is empty or contradictory."""
    if vms and (host is not None or scope is not None or update_domain is not None):
        raise Invalid("specify either VM names or a host, scope or update domain, not both")
    if vms:
        return tuple(dict.fromkeys(_full_name(*replica.find(name)) for name in vms))
    if host is None and scope is None:
        what = "VMs, a host or a scope" if update_domain is None else "the scope of the update domain"
        raise Invalid(f"specify {what}")
    if update_domain is not None and scope is None:
        raise Invalid("update domains are numbered within a scope: specify the scope, too")
    found = tuple(
        _full_name(view, vm)
        for view, vm in _matching_vms(replica, host, scope)
        if update_domain is None or vm.update_domain == update_domain
    )
    if not found:
        raise Invalid(_no_match_text(host, scope, update_domain))
    return found


def _matching_vms(replica: Replica, host: str | None, scope: str | None) -> Iterable[tuple[ScopeView, Vm]]:
    view = replica.view(scope) if scope is not None else None
    if host is None:
        return [(view, vm) for vm in view.roster or ()] if view is not None else []
    on_host = replica.hosts().get(host)
    if on_host is None:
        raise HostNotFound(host)
    return [(found, vm) for found, vm in on_host if view is None or found is view]


def _full_name(view: ScopeView, vm: Vm) -> str:
    return f"{view.id}/{vm.name}"


def _no_match_text(host: str | None, scope: str | None, update_domain: int | None) -> str:
    where = [
        f"scope {scope}" if scope is not None else "",
        f"update domain {update_domain}" if update_domain is not None else "",
        f"host {host}" if host is not None else "",
    ]
    return f"there is no VM in {', '.join(filter(None, where))}"
