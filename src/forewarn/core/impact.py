"""What a platform says of the work on one VM. `output` is what a program printed: for the journal, and for people."""

from datetime import timedelta

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.text import check_name

LONGEST_PAUSE = timedelta(days=7)


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
        if not timedelta(0) <= self.after <= LONGEST_PAUSE:
            raise Invalid(f"a pause is 0 to {LONGEST_PAUSE.days} days, not {self.after}")


class Unknown(msgspec.Struct, frozen=True):
    """Nobody can tell whether the work was done."""

    why: str = ""
    output: str = ""


class NotBegun(msgspec.Struct, frozen=True):
    """The platform has not touched the VM for this."""


Outcome = Done | Failed | Retry | Unknown
