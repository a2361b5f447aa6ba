"""Environment variables and event JSON that are passed to hooks and other programs."""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.agent.handlers.base import HandlerContext
from forewarn.client.document import Event
from forewarn.settings.types import VARIABLE_PREFIX
from forewarn.wire.http_date import format_http_date
from forewarn.wire.protocol import UNKNOWN_DURATION

AGENT_ONLY = (VARIABLE_PREFIX, "EVENT_", "LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET", "STATE_DIRECTORY")
"""How the variables begin that tell the agent something, and are nothing to a program."""


class _Event(msgspec.Struct, rename="pascal"):
    event_id: str
    event_status: str
    event_type: str
    resource_type: str
    resources: tuple[str, ...]
    not_before: str
    description: str
    event_source: str
    duration_in_seconds: int


def event_json(event: Event) -> bytes:
    """Return the event as JSON of the newest api-version; unknown values are empty or -1."""
    return msgspec.json.encode(_wire_event(event))


def event_variables(context: HandlerContext, now: datetime) -> dict[str, str]:
    """Return the environment variables of a handler's program; unknown values are empty or -1."""
    event, left = _wire_event(context.event), context.time_left(now)
    values = {
        "EVENT_ID": event.event_id,
        "EVENT_TYPE": event.event_type,
        "EVENT_STATUS": event.event_status,
        "EVENT_SOURCE": event.event_source,
        "EVENT_NOTBEFORE": event.not_before,
        "EVENT_RESOURCES": ",".join(event.resources),
        "EVENT_RESOURCETYPE": event.resource_type,
        "EVENT_DESCRIPTION": event.description,
        "EVENT_DURATION": str(event.duration_in_seconds),
        "FOREWARN_PHASE": context.phase.value,
        "FOREWARN_ATTEMPT": str(context.attempt),
        "FOREWARN_DEADLINE": "" if context.deadline is None else str(int(context.deadline.timestamp())),
        "FOREWARN_SECONDS_LEFT": "" if left is None else str(left // timedelta(seconds=1)),
        "FOREWARN_NAME": context.name,
        "FOREWARN_LEADER": "yes" if context.is_leader else "no",
    }
    return {name: _printable(value) for name, value in values.items()}


def inherited_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the agent's environment without its settings and without tokens."""
    return {name: value for name, value in environ.items() if not name.startswith(AGENT_ONLY)}


def _wire_event(event: Event) -> _Event:
    return _Event(
        event_id=event.id,
        event_status=str(event.status),
        event_type=str(event.type),
        resource_type=event.resource_type,
        resources=event.resources,
        not_before="" if event.not_before is None else format_http_date(event.not_before),
        description=event.description or "",
        event_source=str(event.source or ""),
        duration_in_seconds=_whole_seconds(event.duration),
    )


def _whole_seconds(duration: timedelta | None) -> int:
    return UNKNOWN_DURATION if duration is None else -(-duration // timedelta(seconds=1))


def _printable(text: str) -> str:
    """Replace unprintable characters: a line break could forge a log line, and a variable cannot hold a NUL byte."""
    return "".join(char if char.isprintable() else " " for char in text).encode(errors="replace").decode()
