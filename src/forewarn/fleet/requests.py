"""Requests for events over several scopes: which part is whose, and what became of all of them."""

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2s
from typing import TypeGuard

import msgspec

from forewarn.core.schedule import ScheduleRequest
from forewarn.fleet.errors import NoSuchScope, NoSuchVm, PartlyMade
from forewarn.fleet.replica import Replica

Made = tuple[str, ...] | BaseException


def by_scope(replica: Replica, ask: ScheduleRequest, *, now: datetime) -> dict[str, ScheduleRequest]:
    """Part a request by the scopes of its VMs, which may be named in full or by unambiguous bare names.

    A scope that has answered a request of this key has its part too: its VMs may have left it since.
    """
    if ask.key is not None and not ask.digest:
        ask = msgspec.structs.replace(ask, digest=_digest(ask))
    answered = _answered(replica, ask, now)
    names: dict[str, list[str]] = {}
    for name in ask.vms:
        try:
            view, vm = replica.find(name)
        except (NoSuchVm, NoSuchScope):
            if not answered:
                raise
        else:
            names.setdefault(view.id, []).append(vm.name)
    return {scope: msgspec.structs.replace(ask, vms=tuple(vms)) for scope, vms in names.items()} | answered


def _answered(replica: Replica, ask: ScheduleRequest, now: datetime) -> dict[str, ScheduleRequest]:
    if ask.key is None:
        return {}
    return {view.id: ask for view in replica.answered(ask.key, now=now)}


def _digest(ask: ScheduleRequest) -> str:
    """Tell requests apart by all that they ask for; who asks, and the id, are not part of that."""
    asked = msgspec.structs.replace(ask, id="00000000-0000-0000-0000-000000000000", by="", key=None)
    return blake2s(msgspec.json.encode(asked), digest_size=8).hexdigest()


def all_made(made: Mapping[str, Made]) -> tuple[tuple[str, str], ...]:
    """Return pairs of scope and event; if a scope has failed, raise that, and what the others made with it."""
    events = tuple((scope, event) for scope, each in made.items() if _is_made(each) for event in each)
    errors = [each for each in made.values() if isinstance(each, BaseException)]
    if not errors:
        return events
    if not events or not isinstance(errors[0], Exception):
        raise errors[0]
    raise PartlyMade(events, errors[0]) from errors[0]


def _is_made(each: Made) -> TypeGuard[tuple[str, ...]]:
    return not isinstance(each, BaseException)
