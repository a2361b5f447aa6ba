"""Commands of the scenario language as values. `grammar` defines their syntax; backends execute them.

Events are named by label (E1, E2, …), VMs by `name` or `scope/name`, times as in `lexer`.
"""

from datetime import timedelta
from enum import StrEnum

import msgspec

from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Priority

OPERATOR = "operator"
USER = "user"
"""Who asks, where a scenario does not say it."""

ALL_SCOPES = "all"
"""What is held or released, where it is not one scope."""

NOTHING = "nothing"
"""What follows where nothing does."""


class Preset(StrEnum):
    """The policies that have a name."""

    EMULATOR = "emulator"
    PRODUCTION = "production"


class NoticeRule(StrEnum):
    """Whether the minimum notice is enforced."""

    ENFORCED = "enforced"
    ANY = "any"


class FleetName(StrEnum):
    """The fleets that have a name."""

    DEMONSTRATION = "demonstration"


class PlatformMode(StrEnum):
    """How the platform does its work."""

    AUTOMATIC = "automatic"


class BaseCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a line of a scenario says."""


class SetPolicy(BaseCommand, frozen=True):
    """Choose how the service is run; what is left out stays."""

    preset: Preset | None = None
    announce: AnnouncePolicy | None = None
    notice: NoticeRule | None = None
    speed: float | None = None
    idle: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    operations: int | None = None


class UsePlatform(BaseCommand, frozen=True):
    """The platform carries events out by itself, and time passes from change to change, as in a service.

    `lasting`: each piece of work takes this long; else as long as on the simulated platform.
    """

    way: PlatformMode
    lasting: timedelta | None = None


class UseFleet(BaseCommand, frozen=True):
    """The scenario is about a fleet that has a name."""

    fleet: FleetName


class Handler(BaseCommand, frozen=True):
    """The program under examination acts as this VM, if there is one; else the scenario itself does."""

    vm: str


class AddScope(BaseCommand, frozen=True):
    """A scope comes into being, without VMs."""

    scope: str
    kind: ScopeKind
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: tuple[EventType, ...] = ()
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class ChangeScope(BaseCommand, frozen=True):
    """A scope asks something else of its VMs; what is left out stays."""

    scope: str
    approval: ApprovalRule | None = None
    auto_approve: tuple[EventType, ...] | None = None
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class RemoveScope(BaseCommand, frozen=True):
    """A scope goes."""

    scope: str
    force: bool = False
    by: str = OPERATOR
    why: str = ""


class AddVms(BaseCommand, frozen=True):
    """VMs come to a scope: the one named, else the one that came last."""

    names: tuple[str, ...]
    scope: str | None = None
    domain: int = 0
    host: str | None = None
    priority: Priority | None = None
    terminate_notice: timedelta | None = None


class ChangeVm(BaseCommand, frozen=True):
    """A VM changes; what is left out stays."""

    vm: str
    domain: int | None = None
    host: str | msgspec.UnsetType | None = msgspec.UNSET
    priority: Priority | None = None
    terminate_notice: timedelta | None = None
    by: str = OPERATOR


class RemoveVm(BaseCommand, frozen=True):
    """A VM goes."""

    vm: str
    force: bool = False
    by: str = OPERATOR
    why: str = ""


class Tick(BaseCommand, frozen=True):
    """The clock is set to a time, forwards or back, and time may act."""

    time: timedelta | None = None


class Wait(BaseCommand, frozen=True):
    """Time passes."""

    time: timedelta


class Expect(BaseCommand, frozen=True):
    """Time passes until something happens, or has happened since the last command; or nothing may happen for that long.

    `fact` is told as backends tell it, or the beginning of that.
    """

    subject: str
    happening: tuple[str, ...]
    within: timedelta

    @property
    def fact(self) -> str:
        """What is expected, in one piece."""
        return " ".join((self.subject, *self.happening))


class Outage(BaseCommand, frozen=True):
    """The service is down from now on, for that long."""

    time: timedelta


class Query(BaseCommand, frozen=True):
    """A VM asks for its document."""

    vm: str


class Approve(BaseCommand, frozen=True):
    """A VM approves events, none to many in one request."""

    events: tuple[str, ...]
    vm: str
    through: str | None = None


class Schedule(BaseCommand, frozen=True):
    """Somebody asks for events."""

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


class Restart(BaseCommand, frozen=True):
    """The owner of a VM restarts it."""

    vm: str
    request: str | None = None


class Redeploy(BaseCommand, frozen=True):
    """The owner of a VM has it moved to another host."""

    vm: str
    request: str | None = None


class Delete(BaseCommand, frozen=True):
    """The owner of a VM deletes it."""

    vm: str
    request: str | None = None


class Evict(BaseCommand, frozen=True):
    """The platform takes a low-priority VM away."""

    vm: str
    notice: timedelta | None = None
    request: str | None = None


class Fail(BaseCommand, frozen=True):
    """The hardware under some VMs has failed."""

    vms: tuple[str, ...]
    type: EventType = EventType.REDEPLOY
    request: str | None = None


class Predict(BaseCommand, frozen=True):
    """The hardware under some VMs is expected to fail."""

    vms: tuple[str, ...]
    ahead: timedelta
    request: str | None = None


class Cancel(BaseCommand, frozen=True):
    """A Scheduled event is taken back."""

    event: str
    by: str = OPERATOR
    why: str = ""


class Clear(BaseCommand, frozen=True):
    """The campaign that made an event lets it start."""

    event: str


class Hold(BaseCommand, frozen=True):
    """Nothing planned starts, in one scope or at all."""

    what: str
    reason: str
    by: str = OPERATOR


class Release(BaseCommand, frozen=True):
    """A hold ends."""

    what: str
    by: str = OPERATOR
    why: str = ""


class Begin(BaseCommand, frozen=True):
    """The platform begins an event's work: on the VMs named, else on all of the event."""

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
    """The platform cannot do an event's work now, and wants to be asked again."""

    event: str
    after: timedelta
    vms: tuple[str, ...] = ()
    why: str = ""


class Unknown(BaseCommand, frozen=True):
    """The platform cannot tell whether an event's work was done."""

    event: str
    vms: tuple[str, ...] = ()
    why: str = ""


class Retry(BaseCommand, frozen=True):
    """An operator has work that failed, or whose outcome is unknown, done once more."""

    event: str
    vms: tuple[str, ...] = ()
    by: str = OPERATOR
    why: str = ""


class Resolve(BaseCommand, frozen=True):
    """An operator ends what failed or is unknown of an event, or of it on one VM: given up, or done after all."""

    event: str
    vm: str | None = None
    done: bool = False
    by: str = OPERATOR
    why: str = ""


class GateState(StrEnum):
    """How the health gate of a scenario is found."""

    OPEN = "open"
    CLOSED = "closed"


class StartCampaign(BaseCommand, frozen=True):
    """An operator rolls maintenance over scopes, wave by wave."""

    campaign: str
    type: EventType
    scopes: tuple[str, ...]
    policy: dict[str, timedelta | str | int] = {}
    """The keys of the policy that are given, but for those that have fields of their own here."""
    windows: tuple[tuple[timedelta, timedelta], ...] = ()
    gate: bool = False
    """Whether the gate of the scenario is asked before a scope's next wave."""
    duration: timedelta | None = None
    by: str = OPERATOR
    why: str = ""


class PauseCampaign(BaseCommand, frozen=True):
    """An operator lets no further wave start."""

    campaign: str
    by: str = OPERATOR
    why: str = ""


class ResumeCampaign(BaseCommand, frozen=True):
    """An operator lets a campaign go on."""

    campaign: str
    by: str = OPERATOR
    why: str = ""


class AbortCampaign(BaseCommand, frozen=True):
    """An operator ends a campaign: what is Scheduled is canceled, what is Started ends."""

    campaign: str
    why: str
    by: str = OPERATOR


class RetryWave(BaseCommand, frozen=True):
    """An operator has the failed wave of a scope made once more."""

    campaign: str
    scope: str
    by: str = OPERATOR
    why: str = ""


class SkipWave(BaseCommand, frozen=True):
    """An operator goes on in a scope without its current wave."""

    campaign: str
    scope: str
    why: str
    by: str = OPERATOR


class SetGate(BaseCommand, frozen=True):
    """The health gate that campaigns of the scenario ask is open or closed from now on; before, it is open."""

    state: GateState


class SetFault(BaseCommand, frozen=True):
    """The endpoint misbehaves towards one VM, or towards all: for a time, for some requests, or until it is cleared."""

    kind: FaultKind
    vm: str | None = None
    lasting: timedelta | None = None
    times: int | None = None
    amount: timedelta | None = None


class ClearFaults(BaseCommand, frozen=True):
    """The endpoint behaves again."""


class Explain(BaseCommand, frozen=True):
    """Why does an event wait?"""

    event: str


class Document(BaseCommand, frozen=True):
    """What would a VM see, if it asked?"""

    vm: str


class State(BaseCommand, frozen=True):
    """What is kept of a scope?"""

    scope: str


class Wake(BaseCommand, frozen=True):
    """When will time itself change something next?"""

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
