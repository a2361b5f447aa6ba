"""The handler registry: a handler of the right kind for all settings."""

import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.handlers.base import Done, HandlerBase
from forewarn.agent.handlers.exec import ExecHandler
from forewarn.agent.handlers.haproxy import HaproxyHandler
from forewarn.agent.handlers.log import LogHandler
from forewarn.agent.handlers.notify import NotifyHandler
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.handlers.registry import create_handlers
from forewarn.agent.handlers.systemd import SystemdHandler
from forewarn.agent.handlers.webhook import WebhookHandler
from forewarn.agent.http_server import Request
from forewarn.agent.settings import (
    AgentSettings,
    HandlerSettings,
    HaproxySettings,
    LogHandlerSettings,
    NotifySettings,
    ReadinessSettings,
    SystemdSettings,
    WebhookSettings,
)
from forewarn.agent.settings.handlers import KINDS
from tests.agent.handlers.handler_contexts import PREPARE, RECOVER
from tests.agent.handlers.test_systemd import Machine
from tests.support.haproxy import run_haproxy
from tests.support.processes import free_ports
from tests.support.recording_server import run_recording_server

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


async def check_repeated_recovery(state: Path, settings: HandlerSettings, observe: Callable[[], object]) -> None:
    """Recover twice, the second time in a new agent, and compare what the handler changes in the world."""

    def handler() -> HandlerBase[Any]:
        environ = {"PATH": f"{state / 'bin'}:{os.environ['PATH']}", "UNITS": str(state / "units")}
        (found,) = create_handlers(AgentSettings(state=state / "state", handlers=(settings,)), environ=environ).values()
        assert isinstance(found, HandlerBase)
        return found

    assert await handler().prepare(PREPARE) == Done()
    prepared = observe()
    assert await handler().recover(RECOVER) == Done()
    recovered = observe()
    assert recovered != prepared
    assert await handler().recover(RECOVER) == Done()
    assert observe() == recovered


async def recover_systemd_twice(path: Path) -> None:
    machine = Machine(path)
    machine.set(web="active", batch="inactive")
    settings = SystemdSettings(name="stop", units=("web.service", "batch.service"))
    await check_repeated_recovery(path, settings, lambda: machine.states)


async def recover_haproxy_twice(path: Path) -> None:
    port, web = free_ports(2)
    with run_haproxy(path, port, {"web_0": web, "web_1": web}) as balancer:
        balancer.run_command("set server web/web_1 state maint")
        settings = HaproxySettings(name="drain", socket=balancer.socket, servers=("web/web_0", "web/web_1"))

        def states() -> list[str]:
            rows = balancer.run_command("show servers state web").splitlines()
            return [row.split()[6] for row in rows if " web_" in row]

        await check_repeated_recovery(path, settings, states)


async def recover_http_twice(path: Path) -> None:
    """A request cannot be taken back: the receiver gets the same bytes again, with the id of the event."""
    async with run_recording_server() as web:
        settings = WebhookSettings(name="tell", url=web.url)
        await check_repeated_recovery(path, settings, lambda: web.received[-1].body)


async def recover_readiness_twice(path: Path) -> None:
    """It has no state on disk: after a restart the agent notifies it again."""
    settings = ReadinessSettings(name="probe", wait=timedelta(0))
    handler = create_handlers(AgentSettings(state=path, handlers=(settings,)))["probe"]
    assert isinstance(handler, ReadinessHandler)
    statuses = []
    for call in (handler.prepare, handler.recover, handler.recover):
        context = PREPARE if call == handler.prepare else RECOVER
        assert await call(context) == Done()
        statuses.append(handler.respond(Request("GET", "/serving", {})).status)
    assert statuses == [503, 200, 200]


async def recover_nothing_twice(path: Path) -> None:
    """Handlers that only notify have nothing to recover."""
    for settings in (NotifySettings(name="people"), LogHandlerSettings(name="log")):
        (handler,) = create_handlers(AgentSettings(state=path, handlers=(settings,))).values()
        assert (await handler.recover(RECOVER), await handler.recover(RECOVER)) == (Done(), Done())
    assert os.listdir(path) == []


REPEATED: dict[str, Callable[[Path], Awaitable[None]]] = {
    "systemd": recover_systemd_twice,
    "http": recover_http_twice,
    "haproxy": recover_haproxy_twice,
    "readiness": recover_readiness_twice,
    "notify": recover_nothing_twice,
    "log": recover_nothing_twice,
}


@pytest.mark.process
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "exec"])
async def test_recovery_of_a_built_in_handler_can_run_twice(tmp_path: Path, kind: str) -> None:
    """A kill during recovery repeats it. Only programs of `exec` decide themselves what that means."""
    await REPEATED[kind](tmp_path)
