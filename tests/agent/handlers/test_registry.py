"""The handler registry: a handler of the right kind for all settings."""

from pathlib import Path

from forewarn.agent.handlers.exec import ExecHandler
from forewarn.agent.handlers.haproxy import HaproxyHandler
from forewarn.agent.handlers.log import LogHandler
from forewarn.agent.handlers.notify import NotifyHandler
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.handlers.registry import create_handlers
from forewarn.agent.handlers.systemd import SystemdHandler
from forewarn.agent.handlers.webhook import WebhookHandler
from forewarn.agent.settings import AgentSettings
from forewarn.agent.settings.handlers import KINDS

CLASSES = {
    "exec": ExecHandler,
    "systemd": SystemdHandler,
    "http": WebhookHandler,
    "haproxy": HaproxyHandler,
    "readiness": ReadinessHandler,
    "notify": NotifyHandler,
    "log": LogHandler,
}


def test_each_kind_of_settings_gives_a_handler_of_its_kind(tmp_path: Path) -> None:
    settings = AgentSettings(
        state=tmp_path, handlers=tuple(kind(name=f"my-{name}", importance=7) for name, kind in KINDS.items())
    )
    handlers = create_handlers(settings, environ={})
    assert {name: type(handler) for name, handler in handlers.items()} == {
        f"my-{name}": kind for name, kind in CLASSES.items()
    }
    assert {(handler.name, handler.importance) for handler in handlers.values()} == {(name, 7) for name in handlers}
    assert list(tmp_path.iterdir()) == [], "none of them does anything yet"
