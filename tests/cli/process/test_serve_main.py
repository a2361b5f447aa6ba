"""The process of `forewarn serve`: log, reload on SIGHUP, and notifications to systemd."""

import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.api.local_service import read_token
from forewarn.core.access import Role
from forewarn.core.event import EventType
from tests.support.processes import wait_until
from tests.support.program import GUARD, LOOPBACK
from tests.support.serve_process import EVENTS, SETTINGS, get, guest_url, run_serve

pytestmark = pytest.mark.process


def test_simulated_platform_is_logged(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        pass
    assert "the platform is simulated: maintenance is announced but not carried out on any VM" in service.messages()


def test_umask_does_not_change_the_modes_of_the_data_directory(tmp_path: Path) -> None:
    """Also if it removes permissions of the owner, which would keep the next service from its own files."""
    with run_serve(tmp_path, within=("sh", "-c", 'umask 0277 && exec "$@"', "sh")):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").rglob("*")}
    assert {"forewarn.db", "forewarn.lock", "service.json", "token"} <= modes.keys()
    assert modes == {name: 0o700 if name in {"sockets", "work"} else 0o600 for name in modes}


def test_start_logs_holds_and_the_settings_file(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        service.api.hold(v1.CreateHold(reason="disk swap in rack 4"))
        service.api.hold(v1.CreateHold(reason="a test", scope="web"))
    assert not [message for message in service.messages() if "held" in message]
    with run_serve(tmp_path) as service:
        pass
    held = [record for record in service.log if "held" in record["message"]]
    assert [(each["level"], each["message"], each["scope"], each["by"], each["reason"]) for each in held] == [
        ("warning", "all planned maintenance is held", None, "admin", "disk swap in rack 4"),
        ("warning", "planned maintenance of a scope is held", "web", "admin", "a test"),
    ]
    (ready,) = [record for record in service.log if record["message"] == "ready"]
    assert ready["settings_file"] == str(tmp_path / "forewarn.toml")


def test_missing_program_is_logged_at_start_and_on_reload(tmp_path: Path) -> None:
    settings = SETTINGS.replace('"simulated"', '"command"') + '\n[command]\nprogram = ["{program}"]\n'
    missing, plain = tmp_path / "missing", tmp_path / "fleet.toml"
    with run_serve(tmp_path, settings.format(program=missing)) as service:
        for program in ("/bin/true", plain):
            (tmp_path / "forewarn.toml").write_text(settings.format(program=program))
            service.process.send_signal(signal.SIGHUP)
            service.wait_for("settings reloaded")
    complaints = [message for message in service.messages() if "cannot be run" in message]
    assert complaints == [
        f"{program} cannot be run, so all maintenance will fail: check command.program" for program in (missing, plain)
    ]


def test_reload_applies_settings_and_names_those_that_need_a_restart(tmp_path: Path) -> None:
    short = v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",), notice="1m")
    with run_serve(tmp_path) as service:
        get(guest_url(service, "db"), EVENTS)
        with pytest.raises(RequestRefused) as too_short:
            service.api.schedule(short)
        assert too_short.value.code == "notice-too-short"
        changed = SETTINGS.replace(f'"{LOOPBACK}:0"', f'"{LOOPBACK}:1"')
        (tmp_path / "forewarn.toml").write_text(f"{changed}\n[policy]\nenforce_notice = false\n")
        service.process.send_signal(signal.SIGHUP)
        assert service.wait_for("settings reloaded")["changed"] == ["policy.enforce_notice"]
        assert service.wait_for("changed settings that need a restart")["message"].endswith(": listen")
        assert len(service.api.schedule(short).created) == 1


def test_reload_applies_rate_limit_and_log_level(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        (tmp_path / "forewarn.toml").write_text(
            f'{SETTINGS}\n[guest]\nrequests_per_second = "none"\n[log]\nlevel = "warning"\n'
        )
        service.process.send_signal(signal.SIGHUP)
        url = guest_url(service, "db")
        wait_until(lambda: all(get(url, EVENTS)[0] == 200 for _ in range(20)), "requests without a limit")
        assert service.stop() == 0
    assert service.messages()[-1] != "stopped"


def test_reload_with_invalid_settings_changes_nothing(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        (tmp_path / "forewarn.toml").write_text("speed = 'fast'")
        service.process.send_signal(signal.SIGHUP)
        record = service.wait_for("reload failed")
        assert (record["level"], "speed takes a number above 0" in record["message"]) == ("error", True)
        assert len(list(service.api.vms())) == 3


def test_reload_with_an_invalid_token_file_keeps_the_old_token(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        (tmp_path / "data/token").write_text("no token at all\n")
        (tmp_path / "forewarn.toml").write_text(f"{SETTINGS}\n[policy]\nenforce_notice = false\n")
        service.process.send_signal(signal.SIGHUP)
        record = service.wait_for("reload failed")
        assert (record["level"], "the content is not a token" in record["message"]) == ("error", True)
        (tmp_path / "data/token").write_text("guess-me\n")
        service.process.send_signal(signal.SIGHUP)
        assert "too short" in service.wait_for("reload failed")["message"]
        (tmp_path / "data/token").unlink()
        service.process.send_signal(signal.SIGHUP)
        assert service.wait_for("settings reloaded")["changed"] == ["policy.enforce_notice"]


def test_reload_creates_a_missing_token_file(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        first = read_token(tmp_path / "data/token")
        (tmp_path / "data/token").unlink()
        service.process.send_signal(signal.SIGHUP)
        service.wait_for("no setting has changed")
        second = read_token(tmp_path / "data/token")
        assert first != second
        assert service.api.me().role is Role.ADMIN


@contextmanager
def listening_manager(name: str | bytes) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(GUARD)
        yield manager


def told(manager: socket.socket, wanted: str) -> str:
    """Return the next datagram with this prefix."""
    while not (said := manager.recv(4096).decode()).startswith(wanted):
        pass
    return said


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_systemd_is_notified_of_start_reload_and_stop(tmp_path: Path, kind: str) -> None:
    name = f"@forewarn-{os.getpid()}" if kind == "abstract" else str(tmp_path / "notify")
    with listening_manager(name.replace("@", "\0", 1)) as manager:
        watchdog = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}
        with run_serve(tmp_path, **watchdog) as service:
            assert told(manager, "READY=1") == "READY=1\nSTATUS=Serves 3 VMs."
            told(manager, "WATCHDOG=1")
            told(manager, "WATCHDOG=1")
            service.process.send_signal(signal.SIGHUP)
            assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", told(manager, "RELOADING=1"))
            told(manager, "READY=1")
            service.process.send_signal(signal.SIGTERM)
            told(manager, "STOPPING=1")
            assert service.wait_for_exit() == 0
