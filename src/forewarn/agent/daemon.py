"""The agent as it runs: watches, walks, and never dies of what goes wrong around it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from forewarn.agent.approving import Policy
from forewarn.agent.handlers.port import Handler
from forewarn.agent.peers import Peers
from forewarn.client.awaiting import AsyncScheduledEvents
from forewarn.client.document import Event
from forewarn.clock import Clock, SystemClock


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent works with."""

    client: AsyncScheduledEvents
    handlers: Mapping[str, Handler]
    choose: Callable[[Event], Sequence[str]]
    """Names the handlers for an event."""
    state_directory: Path
    policy: Policy = Policy()
    peers: Peers | None = None
    listen: tuple[str, int] | None = None
    """Where peers, load balancers and Prometheus ask."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    dry_run: bool = False


async def run_agent(equipment: Equipment, *, stop: asyncio.Event) -> None:
    """Watch and walk until `stop` is set."""
    raise NotImplementedError
