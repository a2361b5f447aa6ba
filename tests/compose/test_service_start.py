"""Start of a service: guests first, then operators, without loading unneeded modules."""

import asyncio
import http.client
import subprocess
import sys
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from forewarn.clock import SystemClock
from forewarn.compose import RunningService, operators, run_service
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.fleet.service import Fleet
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, PRODUCTION, Preset
from tests.compose.reporters import RecordingReporter
from tests.core.sample_scopes import schedule_request

GUARD = 60.0
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def loaded_by(program: str) -> set[str]:
    """Return what a process has loaded after it has run the program."""
    script = f"{program}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=GUARD)
    return set(ended.stdout.split())


@pytest.mark.process
def test_guests_are_served_without_loading_the_operator_api() -> None:
    """It takes longer to load than all the rest: a VM's first answer must not wait for it."""
    loaded = loaded_by("import forewarn.cli.process.up_main")
    assert "httptools" in loaded
    assert loaded & {"h11", "litestar", "jinja2", "yaml", "forewarn.api.v1", "forewarn.operator"} == set()


def ask(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
    try:
        connection.request("GET", EVENTS, headers={"Metadata": "true"})
        return connection.getresponse().status
    finally:
        connection.close()


def started(data: Path, preset: Preset = EMULATOR) -> AbstractAsyncContextManager[RunningService]:
    """Start the emulator, or another preset, on any ports."""
    flags = {"data": str(data), "listen": "127.0.0.1:0", "operator": "127.0.0.1:0", "platform": "simulated"}
    settings = load_settings(preset, flags=flags, environ={}, file=None).settings
    return run_service(settings, preset, environ={}, reporter=RecordingReporter())


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the guests' ports noted here before the operator side is loaded."""
    serve = operators.serve_operators
    noted: list[int] = []

    def serve_noting_ports(
        fleet: Fleet, *others: Any, **more: Any
    ) -> AbstractAsyncContextManager[operators.OperatorServer]:
        noted.extend(fleet.ports.assigned.values())
        return serve(fleet, *others, **more)

    monkeypatch.setattr(operators, "serve_operators", serve_noting_ports)
    return noted


async def test_guest_gets_a_response_while_the_operator_api_is_loaded(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is loaded only after a guest has its answer: were it the other way round, none would come."""
    load = operators._prepare
    answers: list[int] = []

    def load_after_an_answer() -> None:
        answers.append(ask(ports[0]))
        load()

    monkeypatch.setattr(operators, "_prepare", load_after_an_answer)
    async with started(tmp_path):
        assert answers == [200]


async def test_service_stopped_while_the_operator_api_is_loaded_ends_normally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load itself cannot be stopped; nothing of it is used then, and the data can be opened again at once."""
    loads, may_load = asyncio.Event(), threading.Event()
    loop, load = asyncio.get_running_loop(), operators._prepare

    def load_when_told() -> None:
        loop.call_soon_threadsafe(loads.set)
        may_load.wait(GUARD)
        load()

    async def start() -> None:
        async with started(tmp_path):
            raise AssertionError("it has started")

    with monkeypatch.context() as patch:
        patch.setattr(operators, "_prepare", load_when_told)
        starting = asyncio.create_task(start())
        await loads.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        may_load.set()
    async with started(tmp_path) as running:
        assert await asyncio.to_thread(ask, next(iter(running.fleet.ports.assigned.values()))) == 200


async def test_error_while_loading_the_operator_api_ends_the_start(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service without an operator API does not keep running; its guest ports are free again."""

    def fail() -> None:
        raise ImportError("no such part")

    monkeypatch.setattr(operators, "_prepare", fail)
    with pytest.raises(ImportError, match="no such part"):
        async with started(tmp_path):
            raise AssertionError("it has started")
    assert ports
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            ask(port)


async def test_speed_of_the_emulator_does_not_apply_to_real_vms(tmp_path: Path) -> None:
    """It would shorten their notices, and `forewarn serve` has no command that resets it."""
    async with started(tmp_path) as emulator:
        await emulator.fleet.emulator.speed.change(60, by="ann")
    async with started(tmp_path, PRODUCTION) as running:
        fleet, earliest = running.fleet, SystemClock().now() + EVENT_TYPES[EventType.REBOOT].minimum_notice
        ((scope, _),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", unannounced=True))
        (event,) = fleet.replica.scope(scope).events
        assert (fleet.emulator.speed.current, event.not_before >= earliest) == (1, True)
        with pytest.raises(Invalid, match="only in the emulator"):
            await fleet.emulator.speed.change(60, by="ann")
