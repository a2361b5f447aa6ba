"""Commands of the scenario language as values. `grammar` defines their syntax; backends execute them.

Events are named by label (E1, E2, …), VMs by `name` or `scope/name`, times as in `lexer`.
"""

from datetime import timedelta
from enum import StrEnum

import msgspec

from forewarn.core.event import EventType
from forewarn.core.event_type import DEFAULT_FAILURE_TYPE
from forewarn.core.fault import FaultKind
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Priority

OPERATOR = "operator"
USER = "user"
"""The default actors of commands."""

ALL_SCOPES = "all"
"""The word for holding or releasing the whole fleet instead of one scope."""

NOTHING = "nothing"
"""The word for the absence of facts."""


class Preset(StrEnum):
    """Named policies."""

    EMULATOR = "emulator"
    PRODUCTION = "production"


class NoticeRule(StrEnum):
    """Whether the minimum notice is enforced."""

    ENFORCED = "enforced"
    ANY = "any"


class FleetName(StrEnum):
    """Named fleets."""

    DEMONSTRATION = "demonstration"


class PlatformMode(StrEnum):
    """How the platform carries out its work."""

    AUTOMATIC = "automatic"


class BaseCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of one line of a scenario."""


class SetPolicy(BaseCommand, frozen=True):
    """Change the policy of the service; omitted values stay."""

    preset: Preset | None = None
    announce: AnnouncePolicy | None = None
    notice: NoticeRule | None = None
    speed: float | None = None
    idle: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    operations: int | None = None


class UsePlatform(BaseCommand, frozen=True):
    """The platform carries out events automatically, and time passes from change to change, as in a service.

    `lasting` is how long each impact takes; default: as on the simulated platform.
    """

    way: PlatformMode
    lasting: timedelta | None = None


class UseFleet(BaseCommand, frozen=True):
    """The scenario uses a named fleet."""

    fleet: FleetName


class Handler(BaseCommand, frozen=True):
    """The program under test, if there is one, acts as this VM; otherwise the scenario does."""

    vm: str


class AddScope(BaseCommand, frozen=True):
    """Create a scope without VMs."""

    scope: str
    kind: ScopeKind
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: tuple[EventType, ...] = ()
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class ChangeScope(BaseCommand, frozen=True):
    """Change a scope; omitted values stay."""

    scope: str
    approval: ApprovalRule | None = None
    auto_approve: tuple[EventType, ...] | None = None
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class RemoveScope(BaseCommand, frozen=True):
    """Remove a scope."""

    scope: str
    force: bool = False
    by: str = OPERATOR
    why: str = ""


class AddVms(BaseCommand, frozen=True):
    """Add VMs to a scope; default: the scope that was created last."""

    names: tuple[str, ...]
    scope: str | None = None
    domain: int = 0
    host: str | None = None
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class ChangeVm(BaseCommand, frozen=True):
    """Change a VM; omitted values stay."""

    vm: str
    domain: int | None = None
    host: str | msgspec.UnsetType | None = msgspec.UNSET
    priority: Priority | None = None
    terminate_notice: timedelta | None = None
    by: str = OPERATOR


class RemoveVm(BaseCommand, frozen=True):
    """Remove a VM."""

    vm: str
    force: bool = False
    by: str = OPERATOR
    why: str = ""


class Tick(BaseCommand, frozen=True):
    """Set the clock to a time, forwards or back, and apply the time-dependent rules."""

    time: timedelta | None = None


class Wait(BaseCommand, frozen=True):
    """Let time pass."""

    time: timedelta


class Expect(BaseCommand, frozen=True):
    """Let time pass until a fact has occurred since the last command, or check that none occurs for that long.

    `fact` is the text of a fact, or its beginning.
    """

    subject: str
    happening: tuple[str, ...]
    within: timedelta

    @property
    def fact(self) -> str:
        """The expected fact as one text."""
        return " ".join((self.subject, *self.happening))


class Outage(BaseCommand, frozen=True):
    """The service is down from now on, for that long."""

    time: timedelta


class Query(BaseCommand, frozen=True):
    """A VM polls its document."""

    vm: str


class Approve(BaseCommand, frozen=True):
    """A VM approves any number of events in one request."""

    events: tuple[str, ...]
    vm: str
    through: str | None = None


class Schedule(BaseCommand, frozen=True):
    """An operator or a user schedules events."""

    type: EventType
    vms: tuple[str, ...]
    notice: timedelta | None = None
    not_before: timedelta | None = None
    duration: timedelta | None = None
    by: str = OPERATOR
    why: str = ""
    request: str | None = None
    key: str | None = None
    campaign: str = ""
    now: bool = False
    unannounced: bool = False


class Restart(BaseCommand, frozen=True):
    """The owner of a VM restarts it."""

    vm: str
    request: str | None = None
    now: bool = False
    unannounced: bool = False


class Redeploy(BaseCommand, frozen=True):
    """The owner of a VM redeploys it to another host."""

    vm: str
    request: str | None = None
    now: bool = False
    unannounced: bool = False


class Delete(BaseCommand, frozen=True):
    """The owner of a VM deletes it."""

    vm: str
    request: str | None = None
    now: bool = False
    unannounced: bool = False


class Evict(BaseCommand, frozen=True):
    """The platform evicts a low-priority VM."""

    vm: str
    notice: timedelta | None = None
    request: str | None = None
    now: bool = False
    unannounced: bool = False


class Fail(BaseCommand, frozen=True):
    """The hardware of VMs has failed."""

    vms: tuple[str, ...]
    type: EventType = DEFAULT_FAILURE_TYPE
    request: str | None = None


class Predict(BaseCommand, frozen=True):
    """The hardware of VMs is expected to fail."""

    vms: tuple[str, ...]
    ahead: timedelta
    request: str | None = None
    unannounced: bool = False


class Cancel(BaseCommand, frozen=True):
    """An operator cancels a Scheduled event."""

    event: str
    by: str = OPERATOR
    why: str = ""


class Clear(BaseCommand, frozen=True):
    """The campaign clears one of its events, which may then start."""

    event: str


class Hold(BaseCommand, frozen=True):
    """An operator holds planned maintenance, in one scope or in the whole fleet."""

    what: str
    reason: str
    by: str = OPERATOR


class Release(BaseCommand, frozen=True):
    """An operator releases a hold."""

    what: str
    by: str = OPERATOR
    why: str = ""


class Begin(BaseCommand, frozen=True):
    """The platform begins the event's work on the named VMs; default: on all VMs of the event."""

    event: str
    vms: tuple[str, ...] = ()
    again: bool = False


class Done(BaseCommand, frozen=True):
    """The platform has done an event's work."""

    event: str
    vms: tuple[str, ...] = ()
    host: str | None = None


class Failed(BaseCommand, frozen=True):
    """The platform has failed at an event's work."""

    event: str
    vms: tuple[str, ...] = ()
    why: str = ""


class Later(BaseCommand, frozen=True):
    """The platform cannot do an event's work now and asks for a retry later."""

    event: str
    after: timedelta
    vms: tuple[str, ...] = ()
    why: str = ""


class Unknown(BaseCommand, frozen=True):
    """The platform does not know whether an event's work was done."""

    event: str
    vms: tuple[str, ...] = ()
    why: str = ""


class Retry(BaseCommand, frozen=True):
    """An operator retries work that failed or whose outcome is unknown."""

    event: str
    vms: tuple[str, ...] = ()
    by: str = OPERATOR
    why: str = ""


class Resolve(BaseCommand, frozen=True):
    """An operator resolves failed or unknown work of an event, or of one VM of it, as given up or as done."""

    event: str
    vm: str | None = None
    done: bool = False
    by: str = OPERATOR
    why: str = ""


class GateState(StrEnum):
    """The state of the scenario's health gate."""

    OPEN = "open"
    CLOSED = "closed"


class StartCampaign(BaseCommand, frozen=True):
    """An operator starts a campaign on scopes."""

    campaign: str
    type: EventType
    scopes: tuple[str, ...]
    policy: dict[str, timedelta | str | int] = {}
    """The given keys of the policy, except those that have their own field here."""
    windows: tuple[tuple[timedelta, timedelta], ...] = ()
    gate: bool = False
    """Whether the scenario's gate is checked before a scope's next wave."""
    duration: timedelta | None = None
    unannounced: bool = False
    by: str = OPERATOR
    why: str = ""


class PauseCampaign(BaseCommand, frozen=True):
    """An operator pauses a campaign: no further wave starts."""

    campaign: str
    by: str = OPERATOR
    why: str = ""


class ResumeCampaign(BaseCommand, frozen=True):
    """An operator resumes a campaign."""

    campaign: str
    by: str = OPERATOR
    why: str = ""


class AbortCampaign(BaseCommand, frozen=True):
    """An operator aborts a campaign: Scheduled events are canceled, Started events finish."""

    campaign: str
    why: str
    by: str = OPERATOR


class RetryWave(BaseCommand, frozen=True):
    """An operator retries the failed wave of a scope."""

    campaign: str
    scope: str
    by: str = OPERATOR
    why: str = ""


class SkipWave(BaseCommand, frozen=True):
    """An operator skips the current wave of a scope."""

    campaign: str
    scope: str
    why: str
    by: str = OPERATOR


class SetGate(BaseCommand, frozen=True):
    """Open or close the health gate of the scenario's campaigns; it is open at first."""

    state: GateState


class SetFault(BaseCommand, frozen=True):
    """Set a fault of the endpoint for one VM or all VMs: for a time, for some requests, or until it is cleared."""

    kind: FaultKind
    vm: str | None = None
    lasting: timedelta | None = None
    times: int | None = None
    amount: timedelta | None = None


class ClearFaults(BaseCommand, frozen=True):
    """Clear all faults."""


class Explain(BaseCommand, frozen=True):
    """Show why an event waits."""

    event: str


class Document(BaseCommand, frozen=True):
    """Show the document of a VM."""

    vm: str


class State(BaseCommand, frozen=True):
    """Show the state of a scope."""

    scope: str


class Wake(BaseCommand, frozen=True):
    """Show when time alone changes something next."""

    scope: str


Command = (
    SetPolicy | UsePlatform | UseFleet | Handler
    | AddScope | ChangeScope | RemoveScope | AddVms | ChangeVm | RemoveVm
    | Tick | Wait | Expect | Outage | Query | Approve
    | Schedule | Restart | Redeploy | Delete | Evict | Fail | Predict | Cancel | Clear | Hold | Release
    | StartCampaign | PauseCampaign | ResumeCampaign | AbortCampaign | RetryWave | SkipWave | SetGate
    | Begin | Done | Failed | Later | Unknown | Retry | Resolve
    | SetFault | ClearFaults
    | Explain | Document | State | Wake
)  # fmt: skip
