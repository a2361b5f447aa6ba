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
from forewarn.agent.settings.load import read_settings, searched_files, settings_file, variable
from forewarn.agent.settings.schema import (
    AgentSettings,
    ApprovalSettings,
    HttpSettings,
    PeersSettings,
    Rule,
)
from forewarn.agent.settings.types import TEMPLATE_FIELDS, Address, ApprovalMode, RecoverMode

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
    "RecoverMode",
    "Rule",
    "SystemdSettings",
    "WebhookSettings",
    "read_settings",
    "searched_files",
    "settings_file",
    "variable",
]
