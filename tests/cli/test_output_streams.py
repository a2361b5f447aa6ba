"""Output streams: a full disk, a closed stdout, and control sequences.

Processes: for the descriptor of stdout.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.cli.output import sanitize
from tests.cli.in_process import run, run_json
from tests.cli.service_machine import ServiceMachine, run_service_machine

FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


def run_in_shell(service_machine: ServiceMachine, *arguments: str, how: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process with stdout redirected by a shell, because the descriptor itself matters."""
    command = " ".join((sys.executable, "-m", "forewarn.cli", *arguments, how))
    return subprocess.run(  # the shell is what closes stdout; nothing in it is foreign
        command,
        shell=True,
        cwd=service_machine.home,
        env=service_machine.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
@pytest.mark.process
@pytest.mark.parametrize("command", [("vm", "list"), ("vm", "list", "-o", "json"), ("fleet", "export")])
def test_full_disk_is_reported(service_machine: ServiceMachine, command: tuple[str, ...]) -> None:
    done = run_in_shell(service_machine, *command, how="> /dev/full")
    assert (done.returncode, done.stderr) == (1, b"forewarn: cannot write the result: No space left on device\n")


@pytest.mark.process
def test_closed_stdout_is_not_an_error(service_machine: ServiceMachine) -> None:
    done = run_in_shell(service_machine, "vm", "list", how=">&-")
    assert (done.returncode, done.stderr) == (0, b"")


def test_dash_exports_the_fleet_to_stdout(service_machine: ServiceMachine) -> None:
    named, plain = run(service_machine, "fleet", "export", "-"), run(service_machine, "fleet", "export")
    assert (named.code, named.stdout) == (0, plain.stdout)
    assert not (service_machine.home / "-").exists()


@pytest.mark.parametrize("command", [("vm", "show"), ("scope", "show"), ("host", "show"), ("token", "revoke")])
def test_empty_name_is_not_found(service_machine: ServiceMachine, command: tuple[str, ...]) -> None:
    assert run(service_machine, *command, "").code == 4


@pytest.mark.parametrize("reason", ["", "  "])
def test_hold_with_a_blank_reason_is_refused(service_machine: ServiceMachine, reason: str) -> None:
    assert run(service_machine, "hold", reason).code == 2
    assert run_json(service_machine, "hold") == []


def test_control_sequences_in_data_are_sanitized(service_machine: ServiceMachine) -> None:
    reason = "\x1b]0;yours\x07\x1b[2Jaudit\x9b1m \N{RIGHT-TO-LEFT OVERRIDE}"
    run(service_machine, "hold", reason, "--scope", "pair")
    try:
        shown = [
            run(service_machine, *command)
            for command in (("hold",), ("scope", "show", "pair"), ("journal", "--action", "held"))
        ]
        (hold,) = run_json(service_machine, "hold")
    finally:
        run(service_machine, "release", "--scope", "pair")
    for ended in shown:
        assert "audit" in ended.stdout + ended.stderr
        assert not set("\x1b\x07\x9b\N{RIGHT-TO-LEFT OVERRIDE}") & set(ended.stdout + ended.stderr)
    assert hold["reason"] == reason


def test_own_colours_are_kept() -> None:
    assert sanitize("\x1b[31mbad\x1b[0m\n") == "\x1b[31mbad\x1b[0m\n"
