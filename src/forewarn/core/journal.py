"""Journal entries: what happened to a record, when, by whom and why.

A rule returns entries together with the new value; a store keeps both in one step.
It is for people, and for readers that need every step. One thing is decided from it: whether a request with a key has
made or removed a scope before.
"""

from datetime import datetime
from enum import StrEnum

import msgspec


class Did(StrEnum):
    """What an entry reports."""

    SCOPE_CREATED = "scope-created"
    SCOPE_CHANGED = "scope-changed"
    SCOPE_REMOVED = "scope-removed"
    VM_ADDED = "vm-added"
    VM_CHANGED = "vm-changed"
    VM_REMOVED = "vm-removed"
    VM_MOVED = "vm-moved"
    ENABLED = "enabled"
    DISABLED = "disabled"
    HELD = "held"
    RELEASED = "released"
    SCHEDULED = "scheduled"
    ANNOUNCED = "announced"
    APPROVED = "approved"
    STARTED = "started"
    SHRUNK = "shrunk"
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"
    IMPACT_BEGUN = "impact-begun"
    IMPACT_DONE = "impact-done"
    IMPACT_RETRY = "impact-retry"
    IMPACT_FAILED = "impact-failed"
    IMPACT_UNKNOWN = "impact-unknown"
    IMPACT_RETRIED = "impact-retried"
    IMPACT_GIVEN_UP = "impact-given-up"
    CLOCK_MOVED = "clock-moved"
    FAULT_SET = "fault-set"
    FAULT_CLEARED = "fault-cleared"
    FAULT_ENDED = "fault-ended"
    CAMPAIGN_STARTED = "campaign-started"
    CAMPAIGN_PAUSED = "campaign-paused"
    CAMPAIGN_RESUMED = "campaign-resumed"
    CAMPAIGN_HALTED = "campaign-halted"
    CAMPAIGN_ABORTED = "campaign-aborted"
    CAMPAIGN_ENDED = "campaign-ended"
    WAVE_ANNOUNCED = "wave-announced"
    WAVE_DIFFERS = "wave-differs"
    WAVE_CLEARED = "wave-cleared"
    WAVE_SETTLED = "wave-settled"
    WAVE_FAILED = "wave-failed"
    WAVE_SKIPPED = "wave-skipped"
    WAVE_LEFT = "wave-left"
    WAVE_RETRIED = "wave-retried"
    GATE_SHUT = "gate-shut"
    GATE_OPENED = "gate-opened"
    TOKEN_CREATED = "token-created"  # noqa: S105 - what happened to it, not what it is
    TOKEN_REVOKED = "token-revoked"  # noqa: S105


EVENT_CHANGES = frozenset(
    {Did.SCHEDULED, Did.ANNOUNCED, Did.STARTED, Did.SHRUNK, Did.COMPLETED, Did.CANCELED, Did.FAILED}
)
"""What changes an event for whoever is told of it: not how far the work on it is, nor who has approved it."""

CAMPAIGN_CHANGES = frozenset(did for did in Did if did.value.startswith(("campaign-", "wave-", "gate-")))
"""What campaigns do, and what is done about them."""

REQUEST_KEY = "key"
"""The fact by which an entry that begins or ends a record's life tells which request did it."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a record's journal. `n` counts inside one life of the record, from 1."""

    n: int
    at: datetime
    did: Did
    by: str
    why: str = ""
    event: str | None = None
    vms: tuple[str, ...] = ()
    incarnation: int | None = None
    facts: dict[str, str] = {}
