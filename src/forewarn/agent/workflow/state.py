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
"""The phases in which handlers can still prepare, and the agent can still approve."""


class CallState(StrEnum):
    """State of a handler call."""

    WAITING = "waiting"
    """Not started yet."""
    RUNNING = "begun"
    """An attempt is running. After a crash it is unknown how far it got."""
    PAUSING = "pausing"
    """An attempt failed; a retry follows after a pause."""
    DONE = "done"
    FAILED = "failed"
    """All attempts failed. A recover call is still retried, with an exponential backoff."""
    SKIPPED = "skipped"
    """Not started, because there was no time or the event started or ended first."""
    UNKNOWN = "unknown"
    """Started, and it may have succeeded or not. Only a recover call that runs at most once: it is not repeated."""


class CallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one call of one handler."""

    state: CallState = CallState.WAITING
    attempt: int = 0
    """Number of attempts, including those before a restart of the agent."""
    tries: int = 0
    """Number of attempts since the retries were last reset."""
    started_at: datetime | None = msgspec.field(default=None, name="begun_at")
    until: datetime | None = None
    """While running, the end of the time slice; while pausing or failed, the time of the next attempt."""
    reason: str = msgspec.field(default="", name="why")


NOT_STARTED = CallProgress()


class HandlerStep(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's step in a workflow, with everything that the planner needs to know about the handler."""

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
    """State of this VM's approval."""

    NOT_YET = "not yet"
    IN_FLIGHT = "under way"
    """Being sent. After a crash it is unknown whether the service received it."""
    FAILED = "failed"
    GIVEN = "given"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this VM has approved the event, and if not, why not."""

    state: ApprovalState = msgspec.field(default=ApprovalState.NOT_YET, name="asked")
    tries: int = 0
    retry_at: datetime | None = msgspec.field(default=None, name="again_at")
    reason: str = msgspec.field(default="", name="why")


class PeerState(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of the agent of another affected VM, or why there was no answer."""

    name: str
    is_ready: bool
    reason: str = msgspec.field(default="", name="why")


class WorkflowState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the workflow of one event, without the event itself."""

    vm_name: str = msgspec.field(name="me")
    """This VM's resource name."""
    phase: Phase
    noticed_at: datetime
    steps: tuple[HandlerStep, ...] = ()
    """Sorted by importance, highest first."""
    is_notify_only: bool = msgspec.field(default=False, name="is_only_told")
    """Whether no rule matches the event: handlers are only notified, and the agent does not approve."""
    restarts: int = 0
    """How often an agent has resumed this workflow from its store."""
    boot: str = ""
    """The boot id of the machine when the workflow last advanced; empty if unknown."""
    ready_at: datetime | None = None
    ending: Ending | None = msgspec.field(default=None, name="gone")
    approval: Approval = Approval()
    peers: tuple[PeerState, ...] = ()
    peers_asked_at: datetime | None = None
    is_asking_peers: bool = False


class EventWorkflow(WorkflowState, frozen=True, kw_only=True):
    """The workflow of one event: the event and the state of the workflow."""

    event: Event
    """The event as the service last sent it."""
    reannounced: Event | None = None
    """The event, if it was announced again while it was still being recovered."""

    @property
    def id(self) -> str:
        """The id of the event in upper case: ids are case-insensitive."""
        return event_key(self.event)

    @property
    def is_ready(self) -> bool:
        """Whether this VM is ready for the event to start; this is the answer to peers."""
        return self.ready_at is not None and self.ending is None

    @property
    def is_scheduled(self) -> bool:
        """Whether the event is announced and has not started."""
        return self.ending is None and self.event.status == Status.SCHEDULED

    def step(self, handler: str) -> HandlerStep | None:
        """Return the step of a handler, or None."""
        return next((step for step in self.steps if step.handler == handler), None)


class EventSeen(msgspec.Struct, frozen=True):
    """The document contains the event in this form."""

    event: Event


class EventRemoved(msgspec.Struct, frozen=True):
    """The document no longer contains the event."""

    ending: Ending


class CallEnded(msgspec.Struct, frozen=True):
    """An attempt of a call has ended. `attempt` is its number, so that a late result is recognised."""

    handler: str
    call: HandlerCall
    attempt: int
    result: CallResult


class RecoveredLater(msgspec.Struct, frozen=True):
    """The handler has recovered after a later event, so that an unknown end of an earlier recovery is settled."""

    handler: str


class PeersChecked(msgspec.Struct, frozen=True):
    """All peers that were asked have answered or timed out."""

    states: tuple[PeerState, ...]


class Approved(msgspec.Struct, frozen=True):
    """The service has accepted the approval."""


class ApprovalFailed(msgspec.Struct, frozen=True):
    """The service did not accept the approval, or the outcome is unknown."""

    reason: str


class Restarted(msgspec.Struct, frozen=True):
    """The agent has restarted and loaded the workflow from its store; nothing is in flight."""

    at_most_once: frozenset[str] = frozenset()
    """The handlers that recover at most once."""


class ClockChanged(msgspec.Struct, frozen=True):
    """The machine's clock was set back by `by`; stored times must be shifted by the same amount."""

    by: timedelta


Input: TypeAlias = (
    EventSeen
    | EventRemoved
    | CallEnded
    | RecoveredLater
    | PeersChecked
    | Approved
    | ApprovalFailed
    | Restarted
    | ClockChanged
)


class NotifyHandlers(msgspec.Struct, frozen=True):
    """Notify every handler of the workflow that a phase begins, or continues after a restart."""

    phase: Phase
    attempt: int


class StartCall(msgspec.Struct, frozen=True):
    """Start a handler call, which must end by `until`."""

    handler: str
    call: HandlerCall
    attempt: int
    until: datetime


class CancelCall(msgspec.Struct, frozen=True):
    """Cancel a running call: it timed out or is no longer needed."""

    handler: str
    call: HandlerCall
    attempt: int
    reason: str


class CheckPeers(msgspec.Struct, frozen=True):
    """Ask the agents of these VMs whether they are ready."""

    names: tuple[str, ...]


class Approve(msgspec.Struct, frozen=True):
    """Send the approval to the service."""


class Finish(msgspec.Struct, frozen=True):
    """Delete the finished workflow from the store."""


Action: TypeAlias = NotifyHandlers | StartCall | CancelCall | CheckPeers | Approve | Finish


class WorkflowChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new workflow and its actions: save first, then execute the actions. Advance it again at `wake_at`."""

    workflow: EventWorkflow
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
