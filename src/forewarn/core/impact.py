"""The impact of an event on one VM: its states, and the outcomes that a platform reports.

`output` is what a program printed, for the journal and for operators.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_IMPACT_TEXT_BYTES
from forewarn.core.text import check_name, truncate_text

MAX_RETRY_DELAY = timedelta(days=7)


class Done(msgspec.Struct, frozen=True):
    """The platform has completed the work; `host` is where the VM runs now, if that may have changed."""

    host: str | None = None
    output: str = ""

    def __post_init__(self) -> None:
        if self.host is not None:
            check_name(self.host, "host")


class Failed(msgspec.Struct, frozen=True):
    """The work has failed, and an automatic retry would not help."""

    why: str
    output: str = ""
    unavailable: bool = False
    """Whether it has failed because the platform cannot work on the VM's host at all."""


class Retry(msgspec.Struct, frozen=True):
    """The platform cannot work on the VM now: try again after this time."""

    after: timedelta
    why: str = ""
    output: str = ""
    unavailable: bool = False
    """Whether the platform cannot work on the VM's host at all, because its connection is lost."""

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.after <= MAX_RETRY_DELAY:
            raise Invalid(f"the retry delay must be 0 to {MAX_RETRY_DELAY.days} days, got {self.after}")


class Unknown(msgspec.Struct, frozen=True):
    """It is unknown whether the work was done."""

    why: str = ""
    output: str = ""


class NotStarted(msgspec.Struct, frozen=True):
    """The platform has not started this work."""


ImpactOutcome = Done | Failed | Retry | Unknown


class ImpactState(StrEnum):
    """The progress of the work on one VM."""

    PENDING = "pending"
    BEGUN = "begun"
    RETRY = "retry"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    GIVEN_UP = "given-up"
    GONE = "gone"


SETTLED = frozenset({ImpactState.DONE, ImpactState.GIVEN_UP, ImpactState.GONE})
"""Final states: the impact does not change any more."""


STUCK = frozenset({ImpactState.FAILED, ImpactState.UNKNOWN})
"""States in which a person must decide."""


class Impact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The work of one event on one VM."""

    vm: str
    state: ImpactState = ImpactState.PENDING
    attempt: int = 0
    begun_at: datetime | None = None
    retry_at: datetime | None = None
    why: str = ""
    host: str | None = None
    """The host whose process began the work; None outside a cluster."""
    term: int = 0
    """The term of that process: only it, or a later one of the same host, may report the outcome."""
    stuck_entry: int = 0
    """The scope's journal entry since which it is stuck; 0: it is not stuck, or an older version saved it."""

    def is_stuck(self, seen: int | None = None) -> bool:
        """Return whether it waits for a person; with `seen`, since this entry of the scope's journal or before."""
        return self.state in STUCK and (seen is None or self.stuck_entry <= seen)

    def with_state(self, state: ImpactState, *, why: str = "", retry_at: datetime | None = None) -> "Impact":
        """Return the impact in another state, without the texts of the previous state."""
        short = truncate_text(why, MAX_IMPACT_TEXT_BYTES)
        return msgspec.structs.replace(self, state=state, why=short, retry_at=retry_at, stuck_entry=0)
