"""State of an event's workflow, its inputs and its actions, as values.

The workflow store saves this state; it is enough to continue after a crash. `planner` decides how a workflow continues.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.agent.handlers.base import CallResult
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.client.changes import Ending
from forewarn.client.document import Event, Status, event_key

BEFORE_IMPACT = frozenset({Phase.NOTICE, Phase.PREPARE, Phase.READY, Phase.APPROVE})
"""The phases in which something can still be prepared, or approved."""


class CallState(StrEnum):
    """State of a handler call."""

    WAITING = "waiting"
    """Its turn has not come."""
    RUNNING = "begun"
    """Somebody is at it; after a crash, nobody knows how far it came."""
    PAUSING = "pausing"
    """It is tried again in a moment."""
    DONE = "done"
    FAILED = "failed"
    """All attempts failed. A recover call is still retried, with an exponential backoff."""
    SKIPPED = "skipped"
    """There was no time for it."""


class CallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one call of one handler."""

    state: CallState = CallState.WAITING
    attempt: int = 0
    """How often it was begun, through all crashes."""
    tries: int = 0
    """How often it was begun since it last had all its retries before it."""
    started_at: datetime | None = msgspec.field(default=None, name="begun_at")
    until: datetime | None = None
    """While it is begun, the end of its slice; while it pauses or has failed, the moment of the next try."""
    reason: str = msgspec.field(default="", name="why")


NOT_STARTED = CallProgress()


class HandlerStep(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's step in a workflow, with everything that the planner needs to know of the handler."""

    handler: str
    importance: int = 0
    time_limit: timedelta = timedelta(seconds=30)
    retries: int = 0
    pause: timedelta = timedelta(seconds=1)
    ready_despite_failure: bool = False
    prepare: CallProgress = NOT_STARTED
    recover: CallProgress = NOT_STARTED

    def progress(self, call: HandlerCall) -> CallProgress:
        """Return the progress of one of the calls."""
        return self.prepare if call is HandlerCall.PREPARE else self.recover

    @property
    def needs_recovery(self) -> bool:
        """Whether something may have been prepared that is not undone."""
        return self.prepare.attempt > 0 and self.recover.state is not CallState.DONE

    @property
    def is_blocking(self) -> bool:
        """Whether the VM is not ready because of this step."""
        if self.prepare.state is CallState.FAILED:
            return not self.ready_despite_failure
        return self.prepare.state not in {CallState.DONE, CallState.SKIPPED}


class ApprovalState(StrEnum):
    """What became of the approval."""

    NOT_YET = "not yet"
    IN_FLIGHT = "under way"
    """It was sent, or is about to be; after a crash, nobody knows."""
    FAILED = "failed"
    GIVEN = "given"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this VM has approved the event, and if not, why not."""

    state: ApprovalState = msgspec.field(default=ApprovalState.NOT_YET, name="asked")
    tries: int = 0
    retry_at: datetime | None = msgspec.field(default=None, name="again_at")
    reason: str = msgspec.field(default="", name="why")


class PeerState(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of the agent of another affected VM about the event; no answer is recorded too."""

    name: str
    is_ready: bool
    reason: str = msgspec.field(default="", name="why")


class WorkflowState(msgspec.Struct, frozen=True, kw_only=True):
    """What was done about one event and what came of it, without the event itself."""

    vm_name: str = msgspec.field(name="me")
    """What this VM is called."""
    phase: Phase
    noticed_at: datetime
    steps: tuple[HandlerStep, ...] = ()
    """The most important first."""
    is_notify_only: bool = msgspec.field(default=False, name="is_only_told")
    """Whether nobody has said what to do about such an event: then nobody here brings it forward."""
    restarts: int = 0
    """How often an agent has resumed this workflow from its store."""
    boot: str = ""
    """Since which boot of the machine it is walked; empty where nobody knows."""
    ready_at: datetime | None = None
    ending: Ending | None = msgspec.field(default=None, name="gone")
    approval: Approval = Approval()
    peers: tuple[PeerState, ...] = ()
    peers_asked_at: datetime | None = None
    is_asking_peers: bool = False


class EventWorkflow(WorkflowState, frozen=True, kw_only=True):
    """Everything that is known and was done about one event."""

    event: Event
    """As it was last seen."""
    reannounced: Event | None = None
    """The event, if it was announced again while it was still being recovered."""

    @property
    def id(self) -> str:
        """The id of the event in upper case: ids are case-insensitive."""
        return event_key(self.event)

    @property
    def is_ready(self) -> bool:
        """What a peer is told: whether the event may start as far as this VM is concerned."""
        return self.ready_at is not None and self.ending is None

    @property
    def is_scheduled(self) -> bool:
        """Whether the event is announced and has not begun."""
        return self.ending is None and self.event.status == Status.SCHEDULED

    def step(self, handler: str) -> HandlerStep | None:
        """Return a handler's part."""
        return next((step for step in self.steps if step.handler == handler), None)


class EventSeen(msgspec.Struct, frozen=True):
    """The event is in the document, like this."""

    event: Event


class EventRemoved(msgspec.Struct, frozen=True):
    """The event is not in the document any more."""

    ending: Ending


class CallEnded(msgspec.Struct, frozen=True):
    """An attempt of a call has ended. `attempt` is its number, so that a late result is not taken for another's."""

    handler: str
    call: HandlerCall
    attempt: int
    result: CallResult


class PeersChecked(msgspec.Struct, frozen=True):
    """All peers that were asked have answered, or had their time."""

    states: tuple[PeerState, ...]


class Approved(msgspec.Struct, frozen=True):
    """The service has taken the approval."""


class ApprovalFailed(msgspec.Struct, frozen=True):
    """The service did not take the approval, or nobody knows."""

    reason: str


class Restarted(msgspec.Struct, frozen=True):
    """The agent has loaded the workflow from its store; whatever was in flight is not any more."""


class ClockChanged(msgspec.Struct, frozen=True):
    """The machine's clock was set back by so much: what was to happen after a while is due so much earlier by it."""

    by: timedelta


Input: TypeAlias = (
    EventSeen | EventRemoved | CallEnded | PeersChecked | Approved | ApprovalFailed | Restarted | ClockChanged
)


class NotifyHandlers(msgspec.Struct, frozen=True):
    """Notify every handler of the workflow that a phase begins, or goes on after a restart."""

    phase: Phase
    attempt: int


class StartCall(msgspec.Struct, frozen=True):
    """Start a handler call; it has until the deadline, if there is one."""

    handler: str
    call: HandlerCall
    attempt: int
    until: datetime


class CancelCall(msgspec.Struct, frozen=True):
    """Cancel a call that is in flight: its time is over, or it is not needed any more."""

    handler: str
    call: HandlerCall
    attempt: int
    reason: str


class CheckPeers(msgspec.Struct, frozen=True):
    """Ask the agents of these VMs whether they are ready."""

    names: tuple[str, ...]


class Approve(msgspec.Struct, frozen=True):
    """Tell the service that the event may start."""


class Finish(msgspec.Struct, frozen=True):
    """The workflow is over: delete it from the store."""


Action: TypeAlias = NotifyHandlers | StartCall | CancelCall | CheckPeers | Approve | Finish


class WorkflowChange(msgspec.Struct, frozen=True, kw_only=True):
    """How a workflow goes on: save it first, then execute the actions. Advance it again at `wake_at`."""

    workflow: EventWorkflow
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
