"""The client library for software inside a VM, on Azure or on Forewarn.

from forewarn.client import ScheduledEvents

with ScheduledEvents() as se:
    for change in se.watch(mine=True):
        ...
"""

from typing import TYPE_CHECKING

from forewarn.client.changes import Appeared, Change, Changed, Ending, Gone, Started
from forewarn.client.document import Document, Event, Status
from forewarn.client.errors import (
    ClientError,
    Closed,
    NoName,
    NoSuchEvent,
    NotAllowed,
    NotAnEndpoint,
    NotAnEvent,
    NotUnderstood,
    NoVersion,
    Refused,
    TooSlow,
    Unavailable,
    Unreachable,
)
from forewarn.client.interruption import Interruption
from forewarn.client.leader_election import deputy, is_deputy, is_leader, leader
from forewarn.client.sync import ScheduledEvents
from forewarn.core.event import EventType, Source

__all__ = [
    "Appeared",
    "AsyncInterruption",
    "AsyncScheduledEvents",
    "Change",
    "Changed",
    "ClientError",
    "Closed",
    "Document",
    "Ending",
    "Event",
    "EventType",
    "Gone",
    "Interruption",
    "NoName",
    "NoSuchEvent",
    "NoVersion",
    "NotAllowed",
    "NotAnEndpoint",
    "NotAnEvent",
    "NotDiscovered",
    "NotUnderstood",
    "Refused",
    "ScheduledEvents",
    "Source",
    "Started",
    "Status",
    "TooSlow",
    "Unavailable",
    "Unreachable",
    "deputy",
    "discover_endpoint",
    "is_deputy",
    "is_leader",
    "leader",
]

# Imported on first use: what needs asyncio, and what few programs need.
if TYPE_CHECKING:
    from forewarn.client.aio import AsyncInterruption, AsyncScheduledEvents
    from forewarn.client.discovery import NotDiscovered, discover_endpoint
else:
    _LATER = {
        "AsyncInterruption": "forewarn.client.aio",
        "AsyncScheduledEvents": "forewarn.client.aio",
        "NotDiscovered": "forewarn.client.discovery",
        "discover_endpoint": "forewarn.client.discovery",
    }

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
