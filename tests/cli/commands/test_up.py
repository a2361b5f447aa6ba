"""`forewarn up` as a process: output, files, signals, and the lines to paste into a shell.

Tests that need no process are in test_up_start.
"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.program import FREE_PORTS, GUARD, LOOPBACK, PROGRAM, Machine, UpProcess

pytestmark = pytest.mark.process

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["INT", "TERM", "HUP"])
def test_signal_stops_the_service_and_leaves_only_its_data(machine: Machine, tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    with machine.up("--data", str(data)) as service:
        described = json.loads((data / "service.json").read_text())
        assert (described["pid"], described["operator_url"]) == (service.process.pid, service.ready["operator_url"])
        assert service.stop(number) == 0
    assert service.stderr.splitlines()[-2:] == ["Stopping.", "Stopped."]
    assert {path.name for path in data.iterdir()} == {"forewarn.db", "forewarn.lock", "preset", "token"}


def test_token_file_is_private_and_token_is_not_printed(machine: Machine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with machine.up("--data", str(data)) as service:
        token = (data / "token").read_text().strip()
        machine.run_json("vm", "list", "--data", str(data))
        assert stat.S_IMODE((data / "token").stat().st_mode) == 0o600
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        seen = [Path(f"/proc/{service.process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    assert token not in service.stderr
    assert token not in json.dumps(service.ready)
    assert not any(token.encode() in content for content in seen)


def test_warning_about_a_token_file_that_others_can_read(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        pass
    (tmp_path / "data/token").chmod(0o644)
    with machine.up(*data) as second:
        pass
    warning = f"{tmp_path / 'data/token'} is readable by others: run chmod 600 on it.\n"
    assert (warning in first.stderr, warning in second.stderr) == (False, True)


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


def test_killed_service_continues_after_a_restart(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        scheduled = machine.run_json("event", "schedule", "Reboot", "web-0", "--in", "20m", *data)
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / "data/service.json").exists()
    unreachable = machine.run("event", "list", *data)
    assert (unreachable.returncode, unreachable.stderr) == (
        5,
        (
            f"forewarn: no service runs on {tmp_path / 'data'}; start one with `forewarn up` (the emulator) or "
            "`forewarn serve` (for real VMs), or specify one with --url or --data\n"
        ),
    )
    with machine.up(*data) as second:
        assert machine.run_json("event", "list", *data) == scheduled["events"]
        assert second.guest_urls == first.guest_urls


def test_fleet_file_is_imported_only_into_an_empty_directory(machine: Machine, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('scopes = [{ name = "db", kind = "standalone" }]')
    other = tmp_path / "other.toml"
    other.write_text("this is not even read")
    data = ("--data", str(tmp_path / "data"))
    with machine.up("--fleet", str(small), *data) as first:
        assert set(first.guest_urls) == {"db/db"}
    assert "is ignored" not in first.stderr
    with machine.up("--fleet", str(other), *data) as second:
        assert set(second.guest_urls) == {"db/db"}
    assert (
        f"The data directory already has a fleet; {other} is ignored. "
        f"`forewarn fleet import {other}` imports it; to start with it, use another --data DIR or --ephemeral.\n"
    ) in second.stderr
    with machine.up(*data) as third:
        assert set(third.guest_urls) == {"db/db"}
    assert "is ignored" not in third.stderr


def test_message_about_a_fleet_without_vms(machine: Machine, tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text('scopes = [{ name = "web", kind = "availability-set", vms = [] }]')
    with machine.up("--ephemeral", "--fleet", str(empty)) as service:
        assert (service.guest_urls, service.ready["examples"]) == ({}, [])
    assert "The fleet has no VMs: the fleet file has none.\n" in service.stderr


def test_fleet_of_thousands_shows_progress(machine: Machine, tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_text("".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(3_000)))
    with machine.up("--fleet", str(large), "--data", str(tmp_path / "data"), "--listen", "none") as service:
        assert len(machine.run_json("vm", "list", "--data", str(tmp_path / "data"))) == 3_000
    assert re.search(r"Importing the fleet file.*3000/3000", service.stderr)


def test_next_start_removes_the_data_of_a_killed_ephemeral_service(machine: Machine) -> None:
    with machine.up("--ephemeral") as killed:
        killed.stop(signal.SIGKILL)
    assert Path(killed.ready["data"]).exists()
    with machine.up("--ephemeral") as service:
        assert [path.name for path in (machine.runtime / "forewarn").iterdir()] == [Path(service.ready["data"]).name]


def test_default_data_directory_is_below_the_home_directory(machine: Machine) -> None:
    with machine.up() as service:
        assert service.ready["data"] == str(machine.home / ".local/share/forewarn")
        assert len(machine.run_json("vm", "list")) == 15
    assert "--data" not in service.ready["examples"][0]


def test_settings_file_applies_to_up_and_to_client_commands(machine: Machine) -> None:
    (machine.home / "forewarn.toml").write_text('data = "kept"\n[policy]\nenforce_notice = true\n')
    with machine.up() as service:
        assert service.ready["data"] == str(machine.home / "kept")
        refused = machine.run("event", "schedule", "Reboot", "db-0", "--in", "1m")
        assert (refused.returncode, refused.stderr.startswith("forewarn: notice must be at least ")) == (3, True)


def test_second_ctrl_c_kills_the_service(machine: Machine) -> None:
    """A request whose body never arrives delays the shutdown."""
    with machine.up("--ephemeral") as service:
        parts = urlsplit(service.ready["operator_url"])
        token = Path(service.ready["token_file"]).read_text().strip()
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as slow:
            head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
            slow.sendall(head.encode())
            assert machine.run("clock", "show").returncode == 0
            service.process.send_signal(signal.SIGINT)
            assert service.process.stderr is not None
            while service.process.stderr.readline() != "Stopping.\n":
                assert service.process.poll() is None
            assert service.stop(signal.SIGINT) == -signal.SIGINT


def test_missing_extra_is_reported_with_the_install_command(machine: Machine) -> None:
    program = "import sys; sys.modules['litestar'] = None; from forewarn.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "up", "--ephemeral"],
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "forewarn: the service needs litestar: pip install 'forewarn[server]'\n",
    )


def test_module_can_be_run_as_the_program(machine: Machine) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "forewarn.cli", "--version"],
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert ended.stdout == machine.run("--version").stdout


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
