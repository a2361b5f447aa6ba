"""Commands of a host to the control nodes, and their responses, as values. Only control nodes save.

A command can be repeated after a timeout: it has its effect once, and the response is the same.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from forewarn.core.base_error import CodedError
from forewarn.core.errors import (
    CoreError,
    EventVmNotFound,
    InvalidTransition,
    ScopeEventNotFound,
    ScopeVmNotFound,
    WrongHost,
)
from forewarn.core.impact import Done, Failed, ImpactOutcome, Retry, Unknown
from forewarn.fleet.errors import CommandRefused, FleetError, HostTaken, OutcomeUnknown, SaveFailed, ScopeNotFound
from forewarn.platform.port import Work

REPORT_SECONDS = 60.0
"""How often a host reports which scopes have polled."""


class HostCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of a host asks for. `process` is its random id, `term` the one that it was granted."""

    name: ClassVar[str]
    process: str
    term: int = 0


class Claim(HostCommand, frozen=True, kw_only=True):
    """Become the process that serves the host; `holder` describes it for people. Grants a term."""

    name = "claim"
    holder: str
    ports: dict[str, int] = {}
    """The ports of VMs that the process knows."""
    version: str = ""
    """The version of Forewarn."""
    format: int = 1
    """The newest format of records that the process knows."""


class Renew(HostCommand, frozen=True, kw_only=True):
    """Remain that process. `scopes` is the digest of the scopes that it follows."""

    name = "renew"
    scopes: str = ""
    clock_offset: float | None = None
    """How many seconds its clock is ahead of the cluster's time, if it knows that."""


class Release(HostCommand, frozen=True, kw_only=True):
    """Let another process take over at once."""

    name = "release"


class ScopeCommand(HostCommand, frozen=True, kw_only=True):
    """A command about a scope. `revision` is the newest one that the host has seen."""

    scope: str
    revision: int = 0


class Approve(ScopeCommand, frozen=True, kw_only=True):
    """Record the approval of a VM on this host."""

    name = "approve"
    vm: str
    events: tuple[str, ...]


AwareTime = Annotated[datetime, msgspec.Meta(tz=True)]


class ScopePolls(msgspec.Struct, frozen=True, kw_only=True):
    """The polls of a scope's VMs on one host."""

    seen_at: AwareTime
    version: str | None = None
    """The newest api-version of a poll."""
    vms: dict[str, AwareTime] = {}


class Seen(HostCommand, frozen=True, kw_only=True):
    """Report which scopes have polled."""

    name = "seen"
    scopes: dict[str, ScopePolls]
    sent_at: AwareTime | None = None
    """The time of the host's own clock, which may be wrong."""


class Begin(ScopeCommand, frozen=True, kw_only=True):
    """Save that an impact begins, as this attempt."""

    name = "begin"
    event: str
    vm: str
    attempt: int
    again: bool = False


class Settle(ScopeCommand, frozen=True, kw_only=True):
    """Save the outcome of an impact; exactly one of the outcomes is given."""

    name = "settle"
    event: str
    vm: str
    attempt: int
    done: Done | None = None
    failed: Failed | None = None
    retry: Retry | None = None
    unknown: Unknown | None = None

    @property
    def outcome(self) -> ImpactOutcome:
        """The outcome."""
        outcome = self.done or self.failed or self.retry or self.unknown
        if outcome is None:
            raise ValueError("the outcome is missing")
        return outcome


class ReportPorts(HostCommand, frozen=True, kw_only=True):
    """Report the ports at which VMs reach their endpoint on this host, and its address."""

    name = "ports"
    address: str
    ports: dict[str, int]


COMMANDS: dict[str, type[HostCommand]] = {
    each.name: each for each in (Claim, Renew, Release, Approve, Seen, Begin, Settle, ReportPorts)
}

encode = msgspec.json.Encoder().encode
_DECODERS = {name: msgspec.json.Decoder(each) for name, each in COMMANDS.items()}


def decode_command(name: str, body: bytes) -> HostCommand:
    """Return the command; raise ValueError if it is none."""
    if name not in _DECODERS:
        raise ValueError(f"there is no command {name}")
    command: HostCommand = _DECODERS[name].decode(body)
    return command


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a claim or renewal: the term, and the scopes with VMs on the host if they have changed."""

    term: int
    scopes: tuple[str, ...] | None = None
    ports: dict[str, int] = {}
    """The ports of the host's VMs that are saved; only in the response to a claim."""


class CommandResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to a command. `unknown` is never reported as refused: the command may have had its effect."""

    status: Literal["saved", "refused", "failed", "unknown"]
    code: str = ""
    text: str = ""
    details: dict[str, Any] = {}
    revision: int = 0
    """The revision of the scope that includes the effect."""
    work: Work | None = None
    term: ClaimResult | None = None
    at: datetime | None = None
    """The time of the cluster, in the response to a renewal."""

    @classmethod
    def from_error(cls, error: CoreError | FleetError) -> "CommandResponse":
        """Return the response to a command that has failed."""
        match error:
            case OutcomeUnknown():
                return cls(status="unknown", text=error.reason)
            case SaveFailed():
                return cls(status="failed", text=error.reason)
            case _:
                return cls(status="refused", code=error.code, text=str(error), details=error.details)

    def check(self) -> None:
        """Raise the error of a command that has failed."""
        match self.status:
            case "saved":
                return
            case "failed":
                raise SaveFailed(self.text)
            case "unknown":
                raise OutcomeUnknown(self.text)
            case "refused":
                raise _refusal(self)


REFUSALS: dict[str, type[CodedError]] = {
    each.code: each
    for each in (
        EventVmNotFound,
        HostTaken,
        InvalidTransition,
        ScopeEventNotFound,
        ScopeNotFound,
        ScopeVmNotFound,
        WrongHost,
    )
}
"""The refusals on which a host acts. It raises the same error as if it had decided by itself."""


def _refusal(response: CommandResponse) -> CodedError:
    error = REFUSALS.get(response.code)
    if error is None or set(error.fields) != response.details.keys():
        return CommandRefused(response.code, response.text)
    return error(**response.details)


decode_response = msgspec.json.Decoder(CommandResponse).decode
