"""Output streams: a full disk, a closed stdout, and control sequences.

Processes: for the descriptor of stdout.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from forewarn.cli.app import app
from forewarn.cli.output import OWN_COLOUR_CODES, sanitize
from tests.cli.in_process import run, run_json, run_live
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
    assert sanitize("\x1b[31mbad\x1b[0m") == "\x1b[31mbad\x1b[0m"


HOSTILE = "mark\nFORGED\rFORGED\x1b]0;title\x07\x1b[2J\x9b2J\x85FORGED\u2028FORGED\u202eend"
"""A text that would write lines of its own, clear the screen, set the title and turn text around."""

VIEWS = {
    "token list": (),
    "clock show": (),
    "fault set": ("slow", "--vm", "pair/pair-0", "--reason", HOSTILE),
    "fault list": (),
    "fault clear": ("--all", "--reason", HOSTILE),
    "vm list": (),
    "vm show": ("pair/pair-0",),
    "vm change": ("pair/pair-0", "--location", HOSTILE),
    "scope list": (),
    "scope show": ("pair",),
    "scope change": ("pair", "--location", HOSTILE),
    "host gone": (HOSTILE, "--reason", HOSTILE),
    "host list": (),
    "host show": ("hv-0",),
    "doctor": ("pair/pair-0",),
    "event schedule": ("Freeze", "pair/pair-1", "--in", "1h", "--description", HOSTILE, "--reason", HOSTILE),
    "event list": (),
    "event show": ("{event}",),
    "event approve": ("{event}", "--vm", "pair-0", "--reason", HOSTILE),
    "event cancel": ("{event}", "--reason", HOSTILE),
    "campaign plan": ("--name", "kernel", "--type", "Reboot", "--scope", "web", "--description", HOSTILE),
    "campaign list": (),
    "campaign show": ("old",),
    "campaign pause": ("old", "--reason", HOSTILE),
    "campaign resume": ("old", "--reason", HOSTILE),
    "campaign abort": ("old", "--reason", HOSTILE),
    "hold": (HOSTILE, "--scope", "pair"),
    "release": ("--scope", "pair", "--reason", HOSTILE),
    "journal": (),
    "event retry": (HOSTILE,),
    "event resolve": (HOSTILE, "--give-up", "--reason", HOSTILE),
    "campaign retry": (HOSTILE, HOSTILE),
    "campaign skip": (HOSTILE, HOSTILE, "--reason", HOSTILE),
    "token revoke": (HOSTILE,),
    "token create": (HOSTILE,),
    "vm add": (HOSTILE,),
    "vm remove": (HOSTILE,),
    "vm restart": (HOSTILE,),
    "vm redeploy": (HOSTILE,),
    "vm delete": (HOSTILE,),
    "vm evict": (HOSTILE,),
    "vm fail": (HOSTILE,),
    "scope add": (HOSTILE, "--kind", "standalone"),
    "scope remove": (HOSTILE,),
    "fleet import": (HOSTILE,),
    "clock advance": (HOSTILE,),
    "clock speed": (HOSTILE,),
    "campaign start": (HOSTILE,),
    "scenario list": (),
    "scenario show": (HOSTILE,),
    "scenario check": (HOSTILE,),
    "scenario run": (HOSTILE,),
    "exam": ("--only", HOSTILE, "--", "true"),
    "conformance": (HOSTILE,),
    "guest list": ("--endpoint", HOSTILE),
    "guest approve": (HOSTILE, "--endpoint", HOSTILE),
    "agent check": ("--config", HOSTILE),
    "agent status": ("--config", HOSTILE),
    "config": ("--config", HOSTILE),
    "cluster init": ("--config", HOSTILE),
    "cluster status": ("--config", HOSTILE),
    "cluster check": ("--config", HOSTILE),
    "cluster config": ("--config", HOSTILE),
    "cluster upgrade": ("--config", HOSTILE),
    "cluster renew": ("--yes", "--config", HOSTILE),
    "backup": (HOSTILE,),
    "restore": (HOSTILE,),
    "simulate": ("--vms", "10", "--cells", HOSTILE),
    "migrate": ("--from", HOSTILE, "--to", "nats://127.0.0.1:1", "--config", HOSTILE),
}
"""Every command with hostile text: as stored in the fleet, in its arguments, in a refusal."""

NO_VIEWS = {
    "up": "it runs until it is stopped; test_logs has its lines",
    "serve": "likewise",
    "agent run": "likewise",
    "run": "it becomes another program",
    "fleet export": "a file, in which texts have the escape sequences of TOML",
    "watch": "a live view; test_live_view draws hostile text",
    "event watch": "likewise",
    "campaign watch": "likewise",
    "guest watch": "likewise",
}


def commands(group: click.Command, path: str = "") -> Iterator[str]:
    """Return the names of all commands."""
    if not isinstance(group, click.Group):
        yield path.strip()
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found, f"{path} {name}")


def test_every_command_is_listed_here() -> None:
    assert sorted(commands(app)) == sorted((*VIEWS, *NO_VIEWS))


@pytest.mark.parametrize("columns", [None, 100], ids=["file", "terminal"])
def test_hostile_text_writes_no_lines_and_no_control_sequences(tmp_path: Path, columns: int | None) -> None:
    wrong: dict[str, str] = {}
    with run_service_machine(tmp_path) as machine:
        old = ("campaign", "start", "--name", "old", "--type", "Reboot", "--scope", "web", "--description", HOSTILE)
        assert run(machine, *old).code == 0
        for scope in ("web", "pair"):
            assert run(machine, "hold", HOSTILE, "--scope", scope).code == 0
            assert run(machine, "scope", "change", scope, "--location", HOSTILE).code == 0
        made = ("event", "schedule", "Freeze", "pair/pair-0", "--in", "1h", "--description", HOSTILE)
        event = run_json(machine, *made, "--reason", HOSTILE)["created"][0]["id"]
        for command, arguments in VIEWS.items():
            given = (*command.split(), *(each.replace("{event}", event) for each in arguments))
            ended = run_live(machine, *given, columns=columns)
            text = re.sub(rf"\x1b\[(?:{OWN_COLOUR_CODES})m", "", ended.stdout + ended.stderr)
            lines = text.replace("\r\n", "\n").split("\n")
            if any(re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u202e]", line) or line.startswith("FORGED") for line in lines):
                wrong[command] = repr(text)
    assert wrong == {}
