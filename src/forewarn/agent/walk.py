"""The walk of one event through this VM, as values: what was done about it, what came of it, what is still to do.

A walk is what the journal keeps; whoever reads it there knows enough to go on. How a walk goes on is in `walking`.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.agent.handlers.port import Ended
from forewarn.agent.phases import Half, Phase
from forewarn.client.changes import Ending
from forewarn.client.document import Event, Status, key

BEFORE_IMPACT = frozenset({Phase.NOTICE, Phase.PREPARE, Phase.READY, Phase.APPROVE})
"""The phases in which something can still be prepared, or approved."""


class State(StrEnum):
    """How far a half is."""

    WAITING = "waiting"
    """Its turn has not come."""
    BEGUN = "begun"
    """Somebody is at it; after a crash, nobody knows how far it came."""
    PAUSING = "pausing"
    """It is tried again in a moment."""
    DONE = "done"
    FAILED = "failed"
    """All its tries failed. A recover half is still tried again, after longer and longer pauses."""
    SKIPPED = "skipped"
    """There was no time for it."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one half of one handler is."""

    state: State = State.WAITING
    attempt: int = 0
    """How often it was begun, through all crashes."""
    tries: int = 0
    """How often it was begun since it last had all its retries before it."""
    begun_at: datetime | None = None
    until: datetime | None = None
    """While it is begun, the end of its slice; while it pauses or has failed, the moment of the next try."""
    why: str = ""


NOT_BEGUN = Progress()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's part in a walk, with all that has to be known of the handler to plan it."""

    handler: str
    importance: int = 0
    time_limit: timedelta = timedelta(seconds=30)
    retries: int = 0
    pause: timedelta = timedelta(seconds=1)
    ready_despite_failure: bool = False
    prepare: Progress = NOT_BEGUN
    recover: Progress = NOT_BEGUN

    def progress(self, half: Half) -> Progress:
        """Return how far one of the halves is."""
        return self.prepare if half is Half.PREPARE else self.recover

    @property
    def is_to_recover(self) -> bool:
        """Whether something may have been prepared that is not undone."""
        return self.prepare.attempt > 0 and self.recover.state is not State.DONE

    @property
    def holds_back(self) -> bool:
        """Whether the VM is not ready because of this step."""
        if self.prepare.state is State.FAILED:
            return not self.ready_despite_failure
        return self.prepare.state not in {State.DONE, State.SKIPPED}


class Asked(StrEnum):
    """What became of the approval."""

    NOT_YET = "not yet"
    UNDER_WAY = "under way"
    """It was sent, or is about to be; after a crash, nobody knows."""
    FAILED = "failed"
    GIVEN = "given"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this VM has approved the event, and if not, why not."""

    asked: Asked = Asked.NOT_YET
    tries: int = 0
    again_at: datetime | None = None
    why: str = ""


class PeerWord(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent of another affected VM said of the event when it was asked. No answer is a word as well."""

    name: str
    is_ready: bool
    why: str = ""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What was done about one event and what came of it, without the event itself."""

    me: str
    """What this VM is called."""
    phase: Phase
    noticed_at: datetime
    steps: tuple[Step, ...] = ()
    """The most important first."""
    is_only_told: bool = False
    """Whether nobody has said what to do about such an event: then nobody here brings it forward."""
    restarts: int = 0
    """How often an agent found this walk in its journal."""
    boot: str = ""
    """Since which boot of the machine it is walked; empty where nobody knows."""
    ready_at: datetime | None = None
    gone: Ending | None = None
    approval: Approval = Approval()
    peers: tuple[PeerWord, ...] = ()
    peers_asked_at: datetime | None = None
    is_asking_peers: bool = False


class Walk(Course, frozen=True, kw_only=True):
    """Everything that is known and was done about one event."""

    event: Event
    """As it was last seen."""
    comeback: Event | None = None
    """The event, if it was announced again while it was still being recovered."""

    @property
    def id(self) -> str:
        """What tells walks apart: the id of the event, which is the same in any case."""
        return key(self.event)

    @property
    def is_ready(self) -> bool:
        """What a peer is told: whether the event may start as far as this VM is concerned."""
        return self.ready_at is not None and self.gone is None

    @property
    def is_scheduled(self) -> bool:
        """Whether the event is announced and has not begun."""
        return self.gone is None and self.event.status == Status.SCHEDULED

    def step(self, handler: str) -> Step | None:
        """Return a handler's part."""
        return next((step for step in self.steps if step.handler == handler), None)


class Seen(msgspec.Struct, frozen=True):
    """The event is in the document, like this."""

    event: Event


class Went(msgspec.Struct, frozen=True):
    """The event is not in the document any more."""

    how: Ending


class HalfEnded(msgspec.Struct, frozen=True):
    """A try of a half has ended. `attempt` says which, so that nothing late is taken for something else."""

    handler: str
    half: Half
    attempt: int
    ended: Ended


class PeersSaid(msgspec.Struct, frozen=True):
    """All peers that were asked have answered, or had their time."""

    words: tuple[PeerWord, ...]


class Approved(msgspec.Struct, frozen=True):
    """The service has taken the approval."""


class ApprovalFailed(msgspec.Struct, frozen=True):
    """The service did not take the approval, or nobody knows."""

    why: str


class Restarted(msgspec.Struct, frozen=True):
    """The agent has found the walk in its journal; whatever was under way is not any more."""


class SetBack(msgspec.Struct, frozen=True):
    """The machine's clock was set back by so much: what was to happen after a while is due so much earlier by it."""

    by: timedelta


Happening: TypeAlias = Seen | Went | HalfEnded | PeersSaid | Approved | ApprovalFailed | Restarted | SetBack


class Tell(msgspec.Struct, frozen=True):
    """Tell every handler of the walk that a phase begins, or goes on after a restart."""

    phase: Phase
    attempt: int


class RunHalf(msgspec.Struct, frozen=True):
    """Begin a half; it has until then, if there is an end."""

    handler: str
    half: Half
    attempt: int
    until: datetime


class CutShort(msgspec.Struct, frozen=True):
    """End a half that is under way: its time is over, or nobody needs it any more."""

    handler: str
    half: Half
    attempt: int
    why: str


class AskPeers(msgspec.Struct, frozen=True):
    """Ask the agents of these VMs whether they are ready."""

    names: tuple[str, ...]


class Approve(msgspec.Struct, frozen=True):
    """Tell the service that the event may start."""


class Finish(msgspec.Struct, frozen=True):
    """The walk is over: strike it from the journal."""


Do: TypeAlias = Tell | RunHalf | CutShort | AskPeers | Approve | Finish


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """How a walk goes on: to be journaled first, then done. At `wake_at`, time itself may change something."""

    walk: Walk
    todo: tuple[Do, ...] = ()
    wake_at: datetime | None = None
