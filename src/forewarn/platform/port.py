"""The platform port: carrying out impacts, checking gates, and sending notifications about campaigns.

A platform gets one piece of work at a time: one event on one VM.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.campaign.spec import HttpCheck
from forewarn.core.event import EventType
from forewarn.core.impact import Done, ImpactOutcome, NotStarted, Unknown


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
    """Carries out impacts on VMs."""

    @property
    def repeatable(self) -> bool:
        """Whether carrying out work again that may have been done does no harm."""
        ...

    async def carry_out(self, work: Work) -> ImpactOutcome:
        """Carry out the work and return its outcome. An exception counts as Failed."""
        ...

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        """Find out, after a crash, whether work that had begun was done."""
        ...


class GateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a gate check: the next wave of a scope. `gate` is a name from the settings, or a check."""

    gate: str | HttpCheck
    campaign: str
    name: str
    scope: str = ""
    wave: int = 0


class GatePassed(msgspec.Struct, frozen=True):
    """The wave may start."""


class GateFailed(msgspec.Struct, frozen=True):
    """The wave may not start now."""

    reason: str


class GateChecker(Protocol):
    """Checks the gates of campaigns."""

    @property
    def gates(self) -> Sequence[str]:
        """The names of the gates in the settings."""
        ...

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Check the gate, with its timeout and retries. An error counts as failed."""
        ...


class NotificationMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a notification about a campaign. `id` is the same over all attempts."""

    id: str
    campaign: str
    name: str
    what: str
    at: datetime
    why: str = ""
    facts: dict[str, str] = {}


class NotificationFailed(BaseError):
    """A receiver did not accept the notification."""

    template = "{problem}"
    problem: str


class Notifier(Protocol):
    """Sends notifications about campaigns."""

    @property
    def has_receivers(self) -> bool:
        """Whether there are receivers."""
        ...

    async def notify(self, message: NotificationMessage) -> None:
        """Try once to notify every receiver that has not been notified yet; NotificationFailed: retry later."""
        ...


def missing_gate(gate: str) -> GateFailed:
    """Return the result of the check of a gate that the settings do not have."""
    return GateFailed(f"the settings have no gate {gate}: define [gates.{gate}], and reload")


class NullGateChecker:
    """A null checker: no gates."""

    @property
    def gates(self) -> Sequence[str]:
        """No names."""
        return ()

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Fail, because the gate does not exist."""
        return GateFailed(f"there is no gate {request.gate}")


class NullNotifier:
    """A null notifier: no receivers."""

    @property
    def has_receivers(self) -> bool:
        """False."""
        return False

    async def notify(self, message: NotificationMessage) -> None:
        """Do nothing."""
