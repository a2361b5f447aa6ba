"""Who carries maintenance out. A platform is given one piece of work at a time: one event on one VM."""

from datetime import timedelta
from typing import Protocol

import msgspec

from forewarn.core.event import EventType
from forewarn.core.impact import Done, NotBegun, Outcome, Unknown


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One event on one VM. `id` is the same over all attempts."""

    id: str
    attempt: int
    event: str
    type: EventType
    scope: str
    vm: str
    vm_id: str
    host: str | None
    duration: timedelta | None
    description: str


class Platform(Protocol):
    """The port."""

    @property
    def repeatable(self) -> bool:
        """Whether carrying out again what was perhaps done does no harm."""
        ...

    async def carry_out(self, work: Work) -> Outcome:
        """Do it and return when it is over. An exception counts as Failed."""
        ...

    async def probe(self, work: Work) -> Done | NotBegun | Unknown:
        """Tell, after a crash, whether work that had begun was done."""
        ...
