"""The document that a scope's VMs read, in each api-version (PROTOCOL §3), and the ETag that names it.

The key order is the wire's, and no version has one key more: a known client rejects any other set.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from forewarn.core.event import Event, State
from forewarn.core.scope import Scope, ScopeKind
from forewarn.wire.http_date import http_date
from forewarn.wire.versions import DESCRIPTION_SINCE, DURATION_SINCE, PREVIEW, SOURCE_SINCE, TYPE_SINCE

UNKNOWN_DURATION = -1

_encode = msgspec.json.Encoder().encode


class _Event(msgspec.Struct, rename="pascal"):
    event_id: str
    event_status: str
    event_type: str
    resource_type: str
    resources: list[str]
    not_before: str
    description: str | UnsetType
    event_source: str | UnsetType
    duration_in_seconds: int | UnsetType


class _Document(msgspec.Struct, rename="pascal"):
    document_incarnation: int
    events: list[_Event]


def document(scope: Scope, version: str) -> bytes:
    """Make the body of a 200. What was never announced, or has a type that came later, is absent."""
    name = _naming(scope, version)
    return _encode(_Document(scope.incarnation, [_shape(event, version, name) for event in _shown(scope, version)]))


def has_events(scope: Scope, version: str) -> bool:
    """Tell whether that document has any events."""
    return any(True for _ in _shown(scope, version))


def etag(scope: Scope, version: str) -> str:
    """Name the document that `document` makes: two of the same name are the same, even after a new beginning."""
    return f'"{scope.epoch}.{scope.incarnation}.{version}"'


def etag_matches(if_none_match: str, current: str) -> bool:
    """Tell whether a client's `If-None-Match` means that it has the current document already."""
    known = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (current, "*") for tag in known)


def _shown(scope: Scope, version: str) -> Iterator[Event]:
    return (event for event in scope.events if event.announced and version >= TYPE_SINCE[event.type])


def _shape(event: Event, version: str, name: Callable[[str], str]) -> _Event:
    return _Event(
        event_id=event.id,
        event_status=event.state.value,
        event_type=event.type.value,
        resource_type="VirtualMachine",
        resources=[name(vm) for vm in event.vms],
        not_before="" if event.state is State.STARTED else http_date(event.not_before),
        description=event.description if version >= DESCRIPTION_SINCE else UNSET,
        event_source=event.source.value if version >= SOURCE_SINCE else UNSET,
        duration_in_seconds=_whole_seconds(event.duration) if version >= DURATION_SINCE else UNSET,
    )


def _naming(scope: Scope, version: str) -> Callable[[str], str]:
    """Return how VMs are called in this version. A VM that has left is taken for what its scope usually holds."""
    if version != PREVIEW:
        return str
    role_instance = {vm.name: vm.role_instance for vm in scope.roster}
    usual = scope.kind is ScopeKind.CLOUD_SERVICE
    return lambda vm: vm if role_instance.get(vm, usual) else f"_{vm}"


def _whole_seconds(duration: timedelta | None) -> int:
    """Round up: nobody is told of a shorter interruption than the one to come."""
    return UNKNOWN_DURATION if duration is None else -(-duration // timedelta(seconds=1))
