"""`forewarn serve` as a process: start, logs, reload on SIGHUP, and shutdown.

Tests that need no process are in test_serve_start.
"""

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.api.local_service import read_token
from forewarn.core.access import Role
from forewarn.core.event import EventType
from tests.support.program import GUARD, LOOPBACK, Machine
from tests.support.serve_process import SETTINGS, ServeProcess, run_serve

pytestmark = pytest.mark.process

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def guest_url(service: ServeProcess, vm: str) -> str:
    return str(service.api.vm(vm).guest_url)


def get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
    try:
        connection.request("GET", path, headers={"Metadata": "true"} | headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_log_is_json_without_tokens(tmp_path: Path) -> None:
    with run_serve(tmp_path, SETTINGS + '[log]\nlevel = "debug"') as service:
        token = read_token(tmp_path / "data/token")
        service.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",)))
        with pytest.raises(RequestRefused):
            ApiClient(service.operator_url, "fw_wrong-token").me()
        made = service.api.create_token(v1.CreateToken(name="eve", role=Role.VIEWER))
        ApiClient(service.operator_url, made.secret).me()
        proc = Path(f"/proc/{service.process.pid}")
        assert token.encode() not in (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
    for line in service.text.splitlines():
        record = json.loads(line)
        assert list(record)[:4] == ["time", "level", "logger", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record["time"])
    for secret in (token, made.secret, "wrong-token"):
        assert secret not in service.text
    assert service.messages()[-2:] == ["stopping", "stopped"]


def test_simulated_platform_is_logged(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        pass
    assert "the platform is simulated: maintenance is announced but not carried out on any VM" in service.messages()


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


def test_fleet_is_empty_without_a_fleet_file(tmp_path: Path) -> None:
    settings = SETTINGS.replace('fleet = "fleet.toml"\n', "")
    with run_serve(tmp_path, settings) as service:
        assert list(service.api.vms()) == []
    with run_serve(tmp_path) as service:
        assert list(service.api.vms()) == []
    (record,) = [
        record for record in service.log if record["message"].startswith("the data directory already has a fleet")
    ]
    assert (record["level"], record["fleet"]) == ("info", str(tmp_path / "fleet.toml"))


def test_long_polls_are_answered_at_shutdown(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        url = guest_url(service, "db")
        _, headers, _ = get(url, EVENTS)
        answers: list[int] = []

        def wait() -> None:
            answers.append(get(url, f"{EVENTS}&wait=60", **{"If-None-Match": headers["etag"]})[0])

        waiting = threading.Thread(target=wait)
        waiting.start()
        until_held(service)
        assert service.stop(signal.SIGTERM) == 0, service.text
        waiting.join(GUARD)
    assert answers == [304]


def until_held(service: ServeProcess) -> None:
    """Wait until the metrics show a long poll of a guest."""
    parts = urlsplit(service.operator_url)
    token = read_token(service.directory / "data/token")
    figures = ""
    for _ in range(10_000):
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        figures = connection.getresponse().read().decode()
        connection.close()
        if re.search(r"^forewarn_guest_held\S* 1(\.0)?$", figures, re.MULTILINE):
            return
    raise AssertionError(figures)


def test_journal_streams_do_not_block_shutdown(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        following = service.api.watch(after=0)
        assert next(entry for entry in following if entry is not None).position == 1
        assert service.stop(signal.SIGTERM) == 0, service.text


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
        for _ in range(100):
            if get(url, EVENTS)[0] != 429 and all(get(url, EVENTS)[0] == 200 for _ in range(20)):
                break
        else:
            raise AssertionError("requests are still limited")
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


def test_data_ahead_of_real_time_is_logged(machine: Machine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with machine.up("--manual-time", "--data", data):
        moved: dict[str, Any] = machine.run_json("clock", "advance", "30d", "--data", data)
    with run_serve(tmp_path) as service:
        pass
    warning = f"This data directory was last used with a manual clock at {moved['now'][:10]} "
    assert any(message.startswith(warning) for message in service.messages()), service.text


def test_service_without_guest_endpoint_is_logged(tmp_path: Path) -> None:
    with run_serve(tmp_path, SETTINGS.replace(f'listen = "{LOOPBACK}:0"\n', "")) as service:
        pass
    (record,) = [record for record in service.log if record["message"].startswith("No VM can reach")]
    assert (record["level"], "listen_link_local" in record["message"]) == ("warning", True)
    with run_serve(tmp_path) as service:
        pass
    assert not any(message.startswith("No VM can reach") for message in service.messages())


def test_emulator_data_is_logged_once(machine: Machine, tmp_path: Path) -> None:
    with machine.up("--data", str(tmp_path / "data")):
        pass
    with run_serve(tmp_path) as first:
        pass
    with run_serve(tmp_path) as second:
        pass
    pointed_out = [
        [message for message in service.messages() if "is from the emulator" in message] for service in (first, second)
    ]
    assert [len(messages) for messages in pointed_out] == [1, 0]
