"""The history of a run: what clients asked for, what guests saw, what the platform did, and what is stored."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """What a client knows about its operation at the end."""

    SAVED = "saved"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class OperationKind(StrEnum):
    """What clients ask for."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    APPROVE = "approve"
    HOLD = "hold"
    RELEASE = "release"
    READ_HOLD = "read-hold"
    CHANGE_VM = "change-vm"
    ADD_VM = "add-vm"
    REMOVE_VM = "remove-vm"
    CREATE_TOKEN = "create-token"
    START_CAMPAIGN = "start-campaign"
    PAUSE_CAMPAIGN = "pause-campaign"
    RESUME_CAMPAIGN = "resume-campaign"
    ABORT_CAMPAIGN = "abort-campaign"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, from its first attempt to the last answer. Times are true ones."""

    kind: OperationKind
    key: str
    """Its idempotency key, which is the reason in the journal too."""
    target: str
    """The scope, the fleet, the name of a campaign or of a token."""
    begun_at: float
    ended_at: float
    outcome: Outcome
    node: str = ""
    """The control node or host that gave the last answer."""
    vm: str = ""
    event: str = ""
    value: str = ""
    """The address of an added VM, the tag of a changed one, the reason of a hold that was read."""
    code: str = ""
    """Why it was refused."""
    is_fresh: bool = False
    """Whether a read has asked for everything that any node has acknowledged or shown."""


class SeenEvent(msgspec.Struct, frozen=True):
    """An event in a document."""

    id: str
    status: str
    vms: tuple[str, ...]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document that a guest got from a host."""

    host: str
    scope: str
    vm: str
    at: float
    epoch: str
    incarnation: int
    events: tuple[SeenEvent, ...]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the platform on a VM, from its own log."""

    host: str
    scope: str
    vm: str
    event: str
    begun_at: float
    ended_at: float | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the journal."""

    position: int
    record: str
    action: str
    actor: str = ""
    reason: str = ""
    event: str = ""
    vms: tuple[str, ...] = ()
    facts: dict[str, str] = {}


class FinalVm(msgspec.Struct, frozen=True, kw_only=True):
    """A VM at the end."""

    host: str
    vm_id: str
    addresses: tuple[str, ...] = ()
    tag: str = ""


class FinalState(msgspec.Struct, frozen=True, kw_only=True):
    """What a control node answers at the end."""

    vms: dict[str, FinalVm]
    """By `scope/name`."""
    open_events: dict[str, str]
    """The status by id."""
    tokens: tuple[str, ...] = ()
    incarnations: dict[str, int] = {}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a campaign."""

    scopes: int
    vms: int


class History(msgspec.Struct, kw_only=True):
    """Everything about a run."""

    operations: list[Operation] = []
    documents: list[Document] = []
    work: list[Work] = []
    journal: list[Line] = []
    """Every line, also those that were purged after they were read."""
    journals: dict[str, list[Line]] = {}
    """By control node, and of the NATS servers: the lines that they have at the end."""
    expired: int = 0
    """Lines up to this position may be purged."""
    finals: dict[str, FinalState] = {}
    """By control node."""
    domains: dict[str, int] = {}
    """The update domain of each `scope/name`."""
    limits: dict[str, Limits] = {}
    """By id of the campaign."""
    is_repeatable: bool = False
    """Whether the platform's program is declared as repeatable."""
