"""AgentContext: the dependencies that an agent is given (client, handlers, policy, peers, clock, state directory)."""

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
    """What the agent needs of a client of the service: what AsyncScheduledEvents has."""

    @property
    def endpoint(self) -> str:
        """The URL of the service."""
        ...

    @property
    def trouble(self) -> ClientError | None:
        """Why the last request brought nothing."""
        ...

    async def name(self) -> str:
        """Return what this VM is called."""
        ...

    async def get(self) -> Document:
        """Return what is planned."""
        ...

    def watch(self, *, mine: bool = False, since: Document | None = None) -> AsyncIterator[Change]:
        """Give every change from then on."""
        ...

    async def approve(self, event: Event) -> None:
        """Let the event start before its time."""
        ...


def _always(_: Event) -> bool:
    return True


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of an agent."""

    client: EventClient
    handlers: Mapping[str, Handler]
    choose: Callable[[Event], Sequence[str]]
    """Names the handlers for an event."""
    may_approve: Callable[[Event], bool] = _always
    """Whether anybody has said what to do about an event; what is only told is never approved."""
    state_directory: Path
    policy: ApprovalPolicy = ApprovalPolicy()
    peers: Peers | None = None
    listen: ListenAddress | None = None
    """Where peers, load balancers and Prometheus ask."""
    boot: str = ""
    """What tells this boot of the machine from others; empty where nobody knows."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    dry_run: bool = False
    """Say what would be done, and do none of it."""
