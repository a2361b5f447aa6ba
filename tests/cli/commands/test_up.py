"""`forewarn up` as a process: data directory, token file, settings and restart.

Tests that need no process are in test_up_start.
"""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import GUARD, Machine

pytestmark = pytest.mark.process

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


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
        assert (refused.returncode, refused.stderr.startswith("forewarn: --in must be at least ")) == (3, True)


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
        "forewarn: the service needs litestar: install Forewarn with its extra [server]\n",
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
