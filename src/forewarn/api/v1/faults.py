"""Fault types: fault injection in the emulator."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Duration, Request, Response, VmName
from forewarn.core.duration import DURATION_PATTERN
from forewarn.core.fault import MAX_TIMES, FaultKind
from forewarn.core.text import Text

__all__ = ["Fault", "Faults", "SetFault"]

SignedDuration = Annotated[
    str, msgspec.Meta(pattern=f"^-?{DURATION_PATTERN.removeprefix('^')}", min_length=2, max_length=36)
]


class Fault(Response, frozen=True):
    """A fault. `vm` is null for all VMs; if `until` and `times` are null, it lasts until it is cleared."""

    id: str
    kind: FaultKind
    vm: str | None
    amount: str | None
    until: datetime | None
    times: int | None
    hits: int
    created_by: str
    created_at: datetime


class Faults(Response, frozen=True):
    """The current faults in the order in which they were set, or the cleared faults."""

    faults: Sequence[Fault]


class SetFault(Request, frozen=True):
    """Set a fault, for a VM or for all, for a duration, for a number of requests, or until it is cleared.

    `amount` is the delay, or the offset of the date, such as `-1h` for a date in the past.
    """

    kind: FaultKind
    vm: VmName | None = None
    duration: Duration | None = None
    times: Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMES)] | None = None
    amount: SignedDuration | None = None
    reason: Text = ""
