"""AgentContext: the dependencies of an agent (client, handlers, policy, peers, clock, state directory)."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from forewarn.agent.handlers.base import Handler
from forewarn.agent.peers import Peers
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.client.changes import Change
from forewarn.client.document import Document, Event
from forewarn.client.errors import ClientError
from forewarn.clock import Clock, SystemClock
from forewarn.settings.types import ListenAddress


class EventClient(Protocol):
    """The part of `AsyncScheduledEvents` that the agent uses."""

    @property
    def endpoint(self) -> str:
        """The URL of the service."""
        ...

    @property
    def trouble(self) -> ClientError | None:
        """Why the last request failed; None if it succeeded."""
        ...

    async def name(self) -> str:
        """Return this VM's resource name."""
        ...

    async def get(self) -> Document:
        """Return the current document."""
        ...

    def watch(self, *, mine: bool = False, since: Document | None = None) -> AsyncIterator[Change]:
        """Yield every change after the document `since`."""
        ...

    async def approve(self, event: Event) -> object:
        """Approve the event, so that it may start early."""
        ...


def _always(_: Event) -> bool:
    return True


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of an agent."""

    client: EventClient
    handlers: Mapping[str, Handler]
    choose: Callable[[Event], Sequence[str]]
    """Returns the names of the handlers for an event."""
    may_approve: Callable[[Event], bool] = _always
    """Whether a rule matches the event. An event that matches no rule is never approved."""
    state_directory: Path
    policy: ApprovalPolicy = ApprovalPolicy()
    peers: Peers | None = None
    listen: ListenAddress | None = None
    """Where the HTTP API for peers, load balancers and Prometheus listens."""
    boot: str = ""
    """The machine's boot id; empty if unknown."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    dry_run: bool = False
    """Log what the agent would do, without doing it."""
