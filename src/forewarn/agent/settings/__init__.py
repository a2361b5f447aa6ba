"""Settings of the agent: `agent.toml`, and environment variables for all keys outside of handlers and rules."""

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
from forewarn.agent.settings.load import read_settings, settings_file, variable
from forewarn.agent.settings.schema import (
    AgentSettings,
    ApprovalSettings,
    HttpSettings,
    PeersSettings,
    Rule,
)
from forewarn.agent.settings.types import TEMPLATE_FIELDS, Address, ApprovalMode

__all__ = [
    "KINDS",
    "TEMPLATE_FIELDS",
    "Address",
    "AgentSettings",
    "ApprovalMode",
    "ApprovalSettings",
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
