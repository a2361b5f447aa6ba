"""`forewarn run` up to the start of the sandbox: the VM, the program and its options.

Programs in real sandboxes are in tests/testing/sandbox.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.commands import run as run_command
from forewarn.testing import sandbox
from tests.cli.in_process import run
from tests.cli.service_machine import ServiceMachine
from tests.support.program import Machine

SOCKET_POSITION = 6
"""The position of the socket's path in the command line of the supervisor."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that would have replaced this process."""
    programs: list[list[str]] = []

    def execv(program: str, arguments: list[str]) -> None:
        assert program == arguments[0]
        programs.append(arguments)

    monkeypatch.setattr(os, "execv", execv)
    return programs


@pytest.mark.parametrize("separator", [("--",), ()], ids=["with --", "without --"])
@pytest.mark.parametrize("net", [False, True], ids=["no net", "net"])
def test_supervisor_gets_the_program_with_its_options(
    service_machine: ServiceMachine, started: list[list[str]], separator: tuple[str, ...], *, net: bool
) -> None:
    command = ("sh", "-c", "true", "--vm", "x", "--net")
    options = ("--net",) if net else ()
    ended = run(service_machine, "run", "--vm", "web/web-0", *options, *separator, *command)
    assert ended == (0, "", "")
    (program,) = started
    socket = Path(program[SOCKET_POSITION])
    assert socket.is_socket()
    assert program == sandbox.supervisor_command(command, socket=socket, hostname="web-0", net=net)


def test_unknown_vm_is_refused(service_machine: ServiceMachine, started: list[list[str]]) -> None:
    assert run(service_machine, "run", "--vm", "nothing", "--", "true") == (
        4,
        "",
        "forewarn: there is no VM nothing; `forewarn vm list` shows them\n",
    )
    assert started == []


@pytest.mark.parametrize("arguments", [("--vm", "web-0"), ("true",)], ids=["program", "vm"])
def test_program_and_vm_are_required(machine: Machine, started: list[list[str]], arguments: tuple[str, ...]) -> None:
    assert (run(machine, "run", *arguments).code, started) == (2, [])


def test_run_without_a_service_is_refused(machine: Machine, started: list[list[str]]) -> None:
    ended = run(machine, "run", "--vm", "web-0", "--data", str(machine.home), "--", "true")
    assert (ended.code, f"no service runs on {machine.home}" in ended.stderr, started) == (5, True, [])


def test_service_on_another_machine_is_refused(
    service_machine: ServiceMachine, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = service_machine.home / "of-another-machine.sock"
    monkeypatch.setattr(ApiClient, "open_socket", lambda _, vm: v1.Socket(scope="web", vm=vm, path=str(path)))
    assert run(service_machine, "run", "--vm", "web-0", "--", "true") == (
        2,
        "",
        f"forewarn: --url: `forewarn run` works only on the machine of the service: there is no socket {path} here\n",
    )
    assert started == []


def test_other_systems_than_linux_are_refused(
    machine: Machine, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "sys", SimpleNamespace(platform="darwin"))
    ended = run(machine, "run", "--vm", "web-0", "--", "true")
    assert (ended.code, ended.stderr.startswith("forewarn: "), "darwin" in ended.stderr) == (125, True, True)
    assert started == []
