"""`forewarn serve` as a process: start, logs and shutdown.

Tests that need no process are in test_serve_start.
"""

import http.client
import json
import re
import signal
import threading
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
from tests.support.serve_process import EVENTS, SETTINGS, ServeProcess, get, guest_url, run_serve

pytestmark = pytest.mark.process


def test_log_is_json_without_tokens(tmp_path: Path) -> None:
    with run_serve(tmp_path, SETTINGS + '[log]\nlevel = "debug"') as service:
        token = read_token(tmp_path / "data/token")
        service.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",), unannounced=True))
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


def test_failed_work_a_lost_connection_and_a_campaign_are_logged_with_their_facts(tmp_path: Path) -> None:
    program = tmp_path / "maintain"
    program.write_text(f"#!/bin/sh\nif [ -e {tmp_path}/reachable ]; then echo no domain >&2; exit 3; fi\nexit 75\n")
    program.chmod(0o755)
    command = f'[command]\nprogram = ["{program}"]\nfirst_pause = "0.1s"\n'
    with run_serve(tmp_path, SETTINGS.replace('"simulated"', '"command"') + command) as service:
        (made,) = service.api.fail(v1.Fail(vms=("web-0",), type=EventType.REBOOT)).created
        lost = service.wait_for("the platform cannot work on host hv-0: ")
        (tmp_path / "reachable").touch()
        found = service.wait_for("the platform works on host hv-0 again")
        failed = service.wait_for("Reboot on web/web-0 has failed: ")
        request = v1.StartCampaign(
            name="kernel",
            type=v1.CampaignType.REBOOT,
            selection=v1.CampaignSelection(scopes=("db",)),
            unannounced=True,
        )
        service.api.start_campaign(request)
        started = service.wait_for("campaign kernel has started")
        service.api.abort_campaign("kernel", v1.AbortCampaign(reason="not today"))
        ended = service.wait_for("campaign kernel has ended; it is Aborted")
    records = (lost, found, failed, started, ended)
    assert [record["level"] for record in records] == ["warning", "info", "error", "info", "info"]
    assert {record["logger"] for record in records} == {"forewarn.fleet.log_observer"}
    assert {name: failed[name] for name in ("scope", "vm", "host", "event", "event_type")} == {
        "scope": "web",
        "vm": "web-0",
        "host": "hv-0",
        "event": made.id,
        "event_type": "Reboot",
    }
    assert (started["campaign"], ended["state"]) == ("kernel", "Aborted")
