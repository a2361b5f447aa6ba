"""How a service starts: guests first, operators after them, and nothing is loaded that nobody needs."""

import http.client
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from forewarn.compose import operators, running_service
from forewarn.fleet.service import Fleet
from forewarn.settings import EMULATOR, resolve

GUARD = 60.0
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def loaded_by(program: str) -> set[str]:
    """Return what a process has loaded after it has run the program."""
    script = f"{program}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=GUARD)
    return {name.partition(".")[0] for name in ended.stdout.split()}


def test_guests_can_be_served_without_what_serves_operators() -> None:
    """It takes longer to load than all the rest: a VM's first answer must not wait for it."""
    loaded = loaded_by("import forewarn.cli.starting")
    assert "httptools" in loaded
    assert loaded & {"litestar", "uvicorn", "jinja2", "yaml"} == set()


def test_operator_side_loads_no_library_that_happens_to_be_installed() -> None:
    loaded = loaded_by("from forewarn.operator.app import prepare\nprepare()")
    assert "litestar" in loaded
    assert loaded & {"pydantic", "attrs", "attr"} == set()


class Silence:
    """Says nothing."""

    def say(self, sentence: str) -> None:
        """Say nothing."""

    def not_read(self, source: Path) -> None:
        """Say nothing."""

    def filling(self, done: int, total: int) -> None:
        """Say nothing."""


def ask(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
    try:
        connection.request("GET", EVENTS, headers={"Metadata": "true"})
        return connection.getresponse().status
    finally:
        connection.close()


async def test_guest_is_answered_while_the_operator_side_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is loaded only after a guest has its answer: were it the other way round, none would come."""
    load, serve = operators._prepare, operators.serving_operators
    ports: list[int] = []
    answers: list[int] = []

    def serve_noting_ports(fleet: Fleet, *others: Any) -> AbstractAsyncContextManager[None]:
        ports.extend(fleet.ports.values())
        return serve(fleet, *others)

    def load_after_an_answer() -> None:
        answers.append(ask(ports[0]))
        load()

    monkeypatch.setattr(operators, "serving_operators", serve_noting_ports)
    monkeypatch.setattr(operators, "_prepare", load_after_an_answer)
    flags = {"data": str(tmp_path / "data"), "listen": "127.0.0.1:0", "operator": "127.0.0.1:0"}
    settings = resolve(EMULATOR, flags=flags, environ={}, file=None).settings
    async with running_service(settings, EMULATOR, environ={}, talk=Silence()):
        assert answers == [200]
