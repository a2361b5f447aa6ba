"""Schema of the agent's settings: the agent itself, HTTP, approval, peers, and the rules that choose handlers."""

from datetime import timedelta
from pathlib import Path

import msgspec

from forewarn.agent.settings.handlers import HandlerSettings
from forewarn.agent.settings.types import (
    Agents,
    ApprovalMode,
    Approvers,
    Directory,
    EndpointOrNone,
    HandlerNames,
    Interval,
    Sources,
    TextOrNone,
    Types,
    UpToDay,
    UpToDayOrNone,
)
from forewarn.settings.types import DurationWithinDay, Flag, ListenAddress, ListenOrNone, LogSettings, PathOrNone

SYSTEM_STATE_DIRECTORY = Path("/var/lib/forewarn-agent")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's HTTP API for peers, load balancers and Prometheus."""

    listen: ListenOrNone = ListenAddress("127.0.0.1", 8160)


class ApprovalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which VM approves events, and when."""

    policy: Approvers = ApprovalMode.LEADER
    deputy_after: UpToDay = timedelta(seconds=60)
    """How long the deputy waits for the leader after it is ready itself."""
    user_events_at_once: Flag = True
    """Approve events that the user requested without waiting for the other VMs."""
    short_freeze: UpToDayOrNone = timedelta(seconds=10)
    """Approve a Freeze of at most this duration without waiting for the other VMs; None or zero switches this off."""


class PeersSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask the agents of other VMs whether they are ready."""

    secret_file: PathOrNone = None
    agents: Agents = ()
    time_limit: DurationWithinDay = timedelta(seconds=3)
    ask_every: DurationWithinDay = timedelta(seconds=5)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers for events that meet all given conditions. An omitted condition matches every event."""

    types: Types = ()
    sources: Sources = ()
    at_least: UpToDayOrNone = None
    at_most: UpToDayOrNone = None
    description: TextOrNone = None
    handlers: HandlerNames = ()


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the agent. Rules are tried in order."""

    endpoint: EndpointOrNone = None
    name: TextOrNone = None
    state: Directory = SYSTEM_STATE_DIRECTORY
    interval: Interval = timedelta(seconds=1)
    http: HttpSettings = HttpSettings()
    approval: ApprovalSettings = ApprovalSettings()
    peers: PeersSettings = PeersSettings()
    log: LogSettings = LogSettings()
    handlers: tuple[HandlerSettings, ...] = ()
    rules: tuple[Rule, ...] = ()

    def handler(self, name: str) -> HandlerSettings:
        """Return the settings of a handler. Raises KeyError for an unknown name."""
        for each in self.handlers:
            if each.name == name:
                return each
        raise KeyError(name)
