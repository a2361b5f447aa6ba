"""Journal entries, the audit log: what happened to a record, when, by whom and why.

A rule returns entries together with the new value; a store saves both in one transaction. One decision depends on the
journal: whether a request with an idempotency key has created or removed a scope before.
"""

from datetime import datetime
from enum import StrEnum

import msgspec


class EntryKind(StrEnum):
    """What an entry records."""

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
    GATE_CLOSED = "gate-shut"
    GATE_OPENED = "gate-opened"
    TOKEN_CREATED = "token-created"  # noqa: S105 - the name of an entry kind, not a secret
    TOKEN_REVOKED = "token-revoked"  # noqa: S105
    RESTORED = "restored"
    WAVE_UNANNOUNCED = "wave-unannounced"
    SPEED_CHANGED = "speed-changed"
    SCENARIO_STARTED = "scenario-started"
    SCENARIO_ENDED = "scenario-ended"
    REPORT_ADDED = "report-added"
    POLICY_CHANGED = "policy-changed"
    CALENDAR_CREATED = "calendar-created"
    CALENDAR_REVOKED = "calendar-revoked"


EVENT_CHANGE_KINDS = frozenset(
    {
        EntryKind.SCHEDULED,
        EntryKind.ANNOUNCED,
        EntryKind.STARTED,
        EntryKind.SHRUNK,
        EntryKind.COMPLETED,
        EntryKind.CANCELED,
        EntryKind.FAILED,
    }
)
"""Changes of an event that clients are notified of; progress of impacts and approvals are not among them."""

CAMPAIGN_CHANGE_KINDS = frozenset(kind for kind in EntryKind if kind.value.startswith(("campaign-", "wave-", "gate-")))
"""What campaigns do, and what operators do with them."""

REQUEST_KEY = "key"
"""The fact with the key of the request that created or removed the record."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of a record's journal. `n` counts from 1 within one life of the record."""

    n: int
    at: datetime
    kind: EntryKind = msgspec.field(name="did")
    by: str
    why: str = ""
    event: str | None = None
    vms: tuple[str, ...] = ()
    incarnation: int | None = None
    facts: dict[str, str] = {}
