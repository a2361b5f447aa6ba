"""What can be set for the agent: `agent.toml`, with a variable for everything that is there only once."""

from forewarn.agent.settings.agent import (
    AgentSettings,
    ApprovalSettings,
    HttpSettings,
    PeersSettings,
    Rule,
)
from forewarn.agent.settings.handlers import (
    KINDS,
    ExecSettings,
    HandlerSettings,
    HaproxySettings,
    LogHandlerSettings,
    NotifySettings,
    ReadinessSettings,
    SystemdSettings,
    WebhookSettings,
)
from forewarn.agent.settings.reading import read_settings, settings_file, variable
from forewarn.agent.settings.values import SAYABLE, Address, By

__all__ = [
    "KINDS",
    "SAYABLE",
    "Address",
    "AgentSettings",
    "ApprovalSettings",
    "By",
    "ExecSettings",
    "HandlerSettings",
    "HaproxySettings",
    "HttpSettings",
    "LogHandlerSettings",
    "NotifySettings",
    "PeersSettings",
    "ReadinessSettings",
    "Rule",
    "SystemdSettings",
    "WebhookSettings",
    "read_settings",
    "settings_file",
    "variable",
]
