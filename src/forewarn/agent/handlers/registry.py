"""Handler registry: creates the configured handlers from their settings. The only module that imports all kinds."""

import os
from collections.abc import Mapping

from forewarn.agent.handlers.base import Handler
from forewarn.agent.handlers.exec import ExecHandler
from forewarn.agent.handlers.haproxy import HaproxyHandler
from forewarn.agent.handlers.log import LogHandler
from forewarn.agent.handlers.notify import NotifyHandler
from forewarn.agent.handlers.programs import DIRECTORY, HandlerPrograms
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.handlers.secret_files import Hide, hide_nothing
from forewarn.agent.handlers.systemd import SystemdHandler
from forewarn.agent.handlers.webhook import WebhookHandler
from forewarn.agent.settings import (
    AgentSettings,
    ExecSettings,
    HandlerSettings,
    HaproxySettings,
    LogHandlerSettings,
    NotifySettings,
    ReadinessSettings,
    SystemdSettings,
    WebhookSettings,
)
from forewarn.clock import Clock, SystemClock


def create_handlers(
    settings: AgentSettings,
    *,
    hide: Hide = hide_nothing,
    environ: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
) -> dict[str, Handler]:
    """Create all configured handlers, by name, without starting any."""
    clock = clock or SystemClock()
    directory = settings.state / DIRECTORY

    def create(each: HandlerSettings) -> Handler:
        programs = HandlerPrograms(directory, each.name, clock)
        match each:
            case ExecSettings():
                return ExecHandler(each, programs, environ=environ, clock=clock)
            case SystemdSettings():
                return SystemdHandler(each, directory, programs, environ=environ)
            case WebhookSettings():
                return WebhookHandler(each, hide=hide, clock=clock)
            case HaproxySettings():
                return HaproxyHandler(each, directory)
            case ReadinessSettings():
                return ReadinessHandler(each, clock=clock)
            case NotifySettings():
                return NotifyHandler(each, programs, hide=hide, environ=environ, clock=clock)
            case LogHandlerSettings():
                return LogHandler(each, clock=clock)
            case _:
                raise AssertionError(f"no handler class for kind {each.kind}")

    return {each.name: create(each) for each in settings.handlers}
