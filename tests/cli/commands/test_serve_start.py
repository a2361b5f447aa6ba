"""Start errors of `forewarn serve` and the owner of a data directory, in the process of the test."""

import json
import socket
from pathlib import Path

import pytest

from forewarn.core.access import Role
from tests.cli.in_process import run, run_json, run_production, run_up
from tests.support.program import FREE_PORTS, Machine
from tests.support.serve_process import SETTINGS


def refused(machine: Machine, settings: str, **environ: str) -> tuple[int, str]:
    """Start it with settings that must fail; return exit code and message."""
    (machine.home / "forewarn.toml").write_text(settings)
    ended = run(machine, "serve", **environ)
    assert ended.stdout == ""
    return ended.code, ended.stderr


def test_platform_setting_is_required(machine: Machine, tmp_path: Path) -> None:
    code, complaint = refused(machine, 'data = "data"')
    assert code == 2
    assert complaint.startswith("forewarn: platform is not set, and a service must not announce maintenance")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ('platform = "command"', "forewarn.toml:1: platform command needs command.program"),
        ("sped = 2", "forewarn.toml:1: sped: unknown key; did you mean speed?"),
        ("speed = 2", "forewarn.toml:1: speed is for the emulator only"),
        ('operator = "0.0.0.0:8170"', "forewarn.toml:1: operator 0.0.0.0:8170 can be reached from other machines"),
        ('[tls]\ncertificate = "c.pem"', "forewarn.toml:2: tls.certificate is set but tls.key is not"),
    ],
    ids=["no program", "unknown key", "emulator only", "no TLS", "half of TLS"],
)
def test_invalid_settings_are_refused_with_file_and_key(machine: Machine, settings: str, complaint: str) -> None:
    code, said = refused(machine, settings, FOREWARN_PLATFORM="" if "platform" in settings else "simulated")
    assert (code, complaint in said) == (2, True), said


def test_busy_port_is_logged_and_exits_with_3(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = refused(machine, f'data = "data"\nplatform = "simulated"\noperator = "127.0.0.1:{port}"')
    (line,) = said.splitlines()
    record = json.loads(line)
    assert (code, record["level"]) == (3, "critical")
    assert f"the operator API: cannot listen on 127.0.0.1:{port}" in record["message"]


def test_first_token_has_role_admin_and_local_commands_find_it(machine: Machine, tmp_path: Path) -> None:
    with run_production(tmp_path) as service:
        assert service.api.me().role is Role.ADMIN
        assert [vm["name"] for vm in run_json(machine, "vm", "list")] == ["db", "web-0", "web-1"]


def test_second_service_on_the_same_data_is_refused(machine: Machine, tmp_path: Path) -> None:
    with run_production(tmp_path) as service:
        code, said = refused(machine, SETTINGS)
        assert (code, "a service already runs on" in said) == (3, True), said
        assert len(list(service.api.vms())) == 3


def test_emulator_does_not_touch_the_data_of_a_service_for_real_vms(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with run_production(tmp_path):
        pass
    (tmp_path / "forewarn.toml").unlink()
    refused_ = run(machine, "up", *FREE_PORTS, *data)
    assert (refused_.code, refused_.stdout) == (3, "")
    assert refused_.stderr == (
        f"forewarn: {tmp_path / 'data'} is the data directory of a service for real VMs, and the emulator would only "
        "simulate their maintenance: run `forewarn serve` there, or choose another --data. To use it in the emulator "
        f"anyway, remove {tmp_path / 'data/preset'} first\n"
    )
    (tmp_path / "data/preset").unlink()
    with run_up(machine, data=tmp_path / "data", manual_time=False) as service:
        assert set(service.guest_urls) == {"db/db", "web/web-0", "web/web-1"}


def test_directory_without_owner_mark_can_be_used_by_both(machine: Machine, tmp_path: Path) -> None:
    with run_up(machine, data=tmp_path / "data", manual_time=False):
        pass
    (tmp_path / "data/preset").unlink()
    with run_up(machine, data=tmp_path / "data", manual_time=False) as service:
        assert len(service.guest_urls) == 15
    assert (tmp_path / "data/preset").read_text() == "emulator\n"
