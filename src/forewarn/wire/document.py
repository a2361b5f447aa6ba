"""Encode the Scheduled Events document of a scope in each api-version (PROTOCOL §3), and its ETag.

The key order is that of the protocol, and no version has additional keys, because a known client rejects any other set.
"""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from forewarn.core.event import Event, State
from forewarn.core.event_type import EVENT_TYPES, announced_duration
from forewarn.core.scope import Scope
from forewarn.wire.http_date import format_http_date
from forewarn.wire.protocol import DESCRIPTION_SINCE, DURATION_SINCE, PREVIEW_VERSION, SOURCE_SINCE, UNKNOWN_DURATION

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


def encode_document(scope: Scope, version: str) -> bytes:
    """Return the body of a 200. It omits unannounced events, and types that the api-version does not have."""
    return _encode(
        _Document(scope.incarnation, [_wire_event(event, version) for event in _visible_events(scope, version)])
    )


def has_events(scope: Scope, version: str) -> bool:
    """Return whether that document has any events."""
    return any(True for _ in _visible_events(scope, version))


def etag(scope: Scope, version: str) -> str:
    """Return the ETag of the document from `encode_document`: equal ETags mean equal documents, even in a new epoch."""
    return f'"{scope.epoch}.{scope.incarnation}.{version}"'


def etag_matches(if_none_match: str, current: str) -> bool:
    """Return whether a client's `If-None-Match` matches the current document."""
    known = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (current, "*") for tag in known)


def _visible_events(scope: Scope, version: str) -> Iterator[Event]:
    return (event for event in scope.events if event.announced and EVENT_TYPES[event.type].is_visible(version))


def _wire_event(event: Event, version: str) -> _Event:
    return _Event(
        event_id=event.id,
        event_status=event.state.value,
        event_type=event.type.value,
        resource_type="VirtualMachine",
        resources=_resource_names(event, version),
        not_before="" if event.state is State.STARTED else format_http_date(event.not_before),
        description=event.description if version >= DESCRIPTION_SINCE else UNSET,
        event_source=event.source.value if version >= SOURCE_SINCE else UNSET,
        duration_in_seconds=_whole_seconds(announced_duration(event)) if version >= DURATION_SINCE else UNSET,
    )


def _resource_names(event: Event, version: str) -> list[str]:
    """Return the names of the affected VMs in this version."""
    if version != PREVIEW_VERSION:
        return list(event.vms)
    plain = set(event.role_instances or ())
    return [vm if vm in plain else f"_{vm}" for vm in event.vms]


def _whole_seconds(duration: timedelta | None) -> int:
    """Round up, so that no VM expects a shorter interruption than the real one."""
    return UNKNOWN_DURATION if duration is None else -(-duration // timedelta(seconds=1))
