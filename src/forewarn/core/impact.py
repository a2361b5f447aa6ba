"""The impact of an event on one VM: its states, and the outcomes that a platform reports.

`output` is what a program printed: for the journal, and for operators.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_IMPACT_TEXT_BYTES
from forewarn.core.text import check_name, truncate_text

MAX_RETRY_DELAY = timedelta(days=7)


class Done(msgspec.Struct, frozen=True):
    """The work is done; `host` says where the VM runs now, where that may have changed."""

    host: str | None = None
    output: str = ""

    def __post_init__(self) -> None:
        if self.host is not None:
            check_name(self.host, "host")


class Failed(msgspec.Struct, frozen=True):
    """The work has failed, and trying again by itself would not help."""

    why: str
    output: str = ""


class Retry(msgspec.Struct, frozen=True):
    """Not now: try again after this time."""

    after: timedelta
    why: str = ""
    output: str = ""

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.after <= MAX_RETRY_DELAY:
            raise Invalid(f"a pause is 0 to {MAX_RETRY_DELAY.days} days, not {self.after}")


class Unknown(msgspec.Struct, frozen=True):
    """Nobody can tell whether the work was done."""

    why: str = ""
    output: str = ""


class NotStarted(msgspec.Struct, frozen=True):
    """The platform has not touched the VM for this."""


ImpactOutcome = Done | Failed | Retry | Unknown


class ImpactState(StrEnum):
    """How far the work on one VM is."""

    PENDING = "pending"
    BEGUN = "begun"
    RETRY = "retry"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    GIVEN_UP = "given-up"
    GONE = "gone"


SETTLED = frozenset({ImpactState.DONE, ImpactState.GIVEN_UP, ImpactState.GONE})
"""Nothing more will happen to such an impact."""


STUCK = frozenset({ImpactState.FAILED, ImpactState.UNKNOWN})
"""Such an impact waits for a person."""


class Impact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of one event on one VM."""

    vm: str
    state: ImpactState = ImpactState.PENDING
    attempt: int = 0
    begun_at: datetime | None = None
    retry_at: datetime | None = None
    why: str = ""

    def with_state(self, state: ImpactState, *, why: str = "", retry_at: datetime | None = None) -> "Impact":
        """Return the impact in another state; what was said of it before is forgotten."""
        short = truncate_text(why, MAX_IMPACT_TEXT_BYTES)
        return msgspec.structs.replace(self, state=state, why=short, retry_at=retry_at)
