"""The message of `forewarn up` when the service is ready: table, remarks, and the lines to paste into a shell."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import pytest

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.api.v1 import CreateHold
from tests.support.program import FREE_PORTS, GUARD, LOOPBACK, PROGRAM, Machine, UpProcess

pytestmark = pytest.mark.process


def test_table_shows_each_vm_with_its_url(machine: Machine) -> None:
    service = machine.start("--ephemeral", *FREE_PORTS)
    assert service.process.stdout is not None
    lines = [service.process.stdout.readline() for _ in range(16)]
    listed = machine.run_json("vm", "list")
    assert service.stop(signal.SIGTERM) == 0
    assert lines[0].split() == ["VM", "SCOPE", "KIND", "HOST", "UPDATE", "DOMAIN", "GUEST", "URL"]
    assert [line.split() for line in lines[1:]] == [
        [vm["name"], vm["scope"], vm["scope_kind"], vm["host"], str(vm["update_domain"]), vm["guest_url"]]
        for vm in listed
    ]


def test_restart_reports_open_events(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        machine.run_json("event", "schedule", "Reboot", "web-0", "web-1", "--in", "20m", *data)
        ports = [urlsplit(url).port or 0 for url in first.guest_urls.values()]
    with machine.up(*data, "--listen", f"{LOOPBACK}:1024") as second:
        assert second.guest_urls == first.guest_urls
    kept = f"Existing VMs keep their ports, from {min(ports)} on; {LOOPBACK}:1024 applies to new VMs.\n"
    open_events = "Continuing with 2 open events (`forewarn event list`).\n"
    assert ("VMs keep" in first.stderr, "It goes on" in first.stderr) == (False, False)
    assert (kept in second.stderr, open_events in second.stderr) == (True, True), second.stderr


def test_restart_reports_holds(machine: Machine, tmp_path: Path) -> None:
    """A hold that was forgotten is seen before the first event that does not start."""
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        machine.run_json("hold", "disk swap in rack 4", *data)
        machine.run_json("hold", "a test", "--scope", "web", *data)
    with machine.up(*data) as second:
        pass
    assert "held" not in first.stderr
    told = [line for line in second.stderr.splitlines() if "held" in line]
    assert [re.sub(r"\d{4}-\S+ \S+Z", "<time>", line) for line in told] == [
        "All planned maintenance is held by admin since <time>: disk swap in rack 4 (`forewarn release` ends it)",
        "Scope web is held by admin since <time>: a test (`forewarn release --scope web` ends it)",
    ]


def test_many_holds_are_counted(machine: Machine, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("".join(f'[[scopes]]\nname = "db-{n:02}"\nkind = "standalone"\n' for n in range(12)))
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data, "--fleet", str(fleet)) as first:
        client = ApiClient(first.ready["operator_url"], read_token(Path(first.ready["token_file"])))
        for number in range(12):
            client.hold(CreateHold(reason="a test", scope=f"db-{number:02}"))
    with machine.up(*data) as second:
        pass
    held = [line.split()[1] for line in second.stderr.splitlines() if line.startswith("Scope ")]
    assert held == [f"db-{number:02}" for number in range(10)]
    assert "… and 2 more holds: forewarn hold\n" in second.stderr


def test_settings_file_is_reported(machine: Machine, tmp_path: Path) -> None:
    usual, given = machine.home / "forewarn.toml", tmp_path / "given.toml"
    with machine.up("--ephemeral") as without:
        pass
    usual.write_text("speed = 2.0\n")
    with machine.up("--ephemeral") as found:
        pass
    given.write_text("speed = 3.0\n")
    with machine.up("--ephemeral", FOREWARN_CONFIG=str(given)) as named:
        pass
    assert [service.ready["settings_file"] for service in (without, found, named)] == [None, str(usual), str(given)]
    none = f"Default settings: {usual} does not exist, and neither --config nor FOREWARN_CONFIG is set.\n"
    lines = (none, f"Settings are from {usual}.\n", f"Settings are from {given}.\n")
    for service, line in zip((without, found, named), lines, strict=True):
        assert line in service.stderr


def test_message_about_a_fleet_without_vms(machine: Machine, tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text('scopes = [{ name = "web", kind = "availability-set", vms = [] }]')
    with machine.up("--ephemeral", "--fleet", str(empty)) as service:
        assert (service.guest_urls, service.ready["examples"]) == ({}, [])
    assert "The fleet has no VMs: the fleet file has none.\n" in service.stderr


class TestPastedLines:
    """The printed lines work unchanged in a shell without the virtual environment."""

    def paste(self, machine: Machine, line: str, tmp_path: Path, shell: str) -> subprocess.CompletedProcess[str]:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        environment = machine.environment | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        return subprocess.run(
            [shell, "-c", line],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )

    @pytest.mark.parametrize("shell", ["sh", "bash"])
    @pytest.mark.parametrize(
        "kept", [("--ephemeral",), ("--data", "some where"), ()], ids=["ephemeral", "data", "home"]
    )
    def test_three_lines_schedule_show_and_approve(
        self, machine: Machine, tmp_path: Path, shell: str, kept: tuple[str, ...]
    ) -> None:
        service = machine.start(*FREE_PORTS, *kept)
        lines = self.printed(service)
        schedule, ask, approve = lines[-3:]
        try:
            ended = self.paste(machine, schedule, tmp_path, shell)
            assert (ended.returncode, "Scheduled" in ended.stdout) == (0, True), ended.stderr
            shown = self.paste(machine, ask, tmp_path, shell)
            assert shown.stdout.endswith("}\n")
            (event,) = json.loads(shown.stdout)["Events"]
            assert (event["EventStatus"], event["Resources"]) == ("Scheduled", ["web-0"])
            assert self.paste(machine, approve, tmp_path, shell).stdout.startswith("HTTP/1.1 200 OK\n")
            shown = self.paste(machine, ask, tmp_path, shell)
            assert [event["EventStatus"] for event in json.loads(shown.stdout)["Events"]] == ["Started"]
        finally:
            assert service.stop(signal.SIGINT) == 0

    @pytest.mark.parametrize("shell", ["sh", "bash"])
    def test_third_line_approves_the_first_of_several_events(
        self, machine: Machine, tmp_path: Path, shell: str
    ) -> None:
        with machine.up("--ephemeral") as service:
            schedule, ask, approve = service.ready["examples"]
            machine.run_json("event", "schedule", "Freeze", "web-0", "--in", "20m")
            assert self.paste(machine, schedule, tmp_path, shell).returncode == 0
            assert self.paste(machine, approve, tmp_path, shell).stdout.startswith("HTTP/1.1 200 OK\n")
            events = json.loads(self.paste(machine, ask, tmp_path, shell).stdout)["Events"]
        assert [(event["EventType"], event["EventStatus"]) for event in events] == [
            ("Freeze", "Started"),
            ("Reboot", "Scheduled"),
        ]

    def test_lines_of_a_rehearsal_have_consent(self, machine: Machine, tmp_path: Path) -> None:
        """The production policy does not announce until a VM polls, as the second line does."""
        (tmp_path / "production.toml").write_text('platform = "simulated"\n')
        with machine.up("--like", str(tmp_path / "production.toml"), "--fleet", "demonstration") as service:
            schedule, ask, _ = service.ready["examples"]
            assert self.paste(machine, schedule, tmp_path, "sh").returncode == 0
            events = json.loads(self.paste(machine, ask, tmp_path, "sh").stdout)["Events"]
        assert [event["EventStatus"] for event in events] == ["Scheduled"]

    @staticmethod
    def printed(service: UpProcess) -> list[str]:
        assert service.process.stdout is not None
        lines: list[str] = []
        while not lines or "| curl" not in lines[-1]:
            lines.append(service.process.stdout.readline().rstrip("\n"))
            assert service.process.poll() is None
        return lines

    def test_lines_work_from_any_directory(self, machine: Machine) -> None:
        with machine.up("--ephemeral") as service:
            schedule, ask, approve = service.ready["examples"]
        assert schedule.startswith(f"{PROGRAM} event schedule Reboot web-0 --in 15m --data ")
        assert (ask[:5], approve[:5], os.linesep in approve) == ("curl ", "curl ", False)


def test_link_to_the_dashboard_signs_in_once(machine: Machine) -> None:
    """The JSON line has the same link as the message."""
    with machine.up("--ephemeral") as service:
        url, _, code = service.ready["dashboard_url"].partition("#")
        assert url == f"{service.ready['operator_url']}/ui/sign-in"
        answers = []
        for _ in range(2):
            request = Request(url, code.encode(), {"Origin": service.ready["operator_url"]})
            try:
                with build_opener(_NoRedirect).open(request, timeout=GUARD) as answer:
                    answers.append(answer.status)
            except HTTPError as error:
                answers.append(error.code)
                error.close()
    assert answers == [303, 401]


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect."""
