"""Start errors of `forewarn up` and the started service, in the process of the test."""

import errno
import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.guest.vm_listeners import ListenFailed
from tests.cli.in_process import run, run_json, run_up
from tests.support.program import FREE_PORTS, GUARD, LOOPBACK, Machine

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def get(url: str, path: str, **headers: str) -> tuple[int, Any]:
    """Send a request to a guest's endpoint; return status and JSON."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
    try:
        connection.request("GET", path, headers={"Metadata": "true"} | headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_every_vm_of_the_demonstration_fleet_is_served_at_its_url(machine: Machine) -> None:
    with run_up(machine) as service:
        assert len(service.guest_urls) == len(set(service.guest_urls.values())) == 15
        for vm, url in service.guest_urls.items():
            assert get(url, EVENTS) == (200, {"DocumentIncarnation": 1, "Events": []})
            _, compute = get(url, "/metadata/instance/compute?api-version=2021-02-01")
            assert (compute["name"], compute["location"]) == (vm.partition("/")[2], "westeurope")


def test_restart_continues_where_the_first_run_stopped(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with run_up(machine, data=tmp_path / "data", manual_time=False) as first:
        scheduled = run_json(machine, "event", "schedule", "Reboot", "web-0", "--in", "20m", *data)
    with run_up(machine, data=tmp_path / "data", manual_time=False) as second:
        assert run_json(machine, "event", "list", *data) == scheduled["events"]
        assert second.guest_urls == first.guest_urls
        assert get(second.guest_urls["web/web-5"], EVENTS)[1]["Events"][0]["EventId"] == scheduled["created"][0]["id"]


def test_second_start_on_the_same_data_is_refused(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with run_up(machine, data=tmp_path / "data", manual_time=False) as service:
        second = run(machine, "up", *FREE_PORTS, *data)
        assert (second.code, second.stdout) == (3, "")
        assert second.stderr == (
            f"forewarn: a service already runs on {tmp_path / 'data'} at {service.ready['operator_url']} "
            f"(process {os.getpid()}): use that one, stop it, or choose another --data\n"
        )
        assert len(run_json(machine, "vm", "list", *data)) == 15


def test_manual_clock_stands_still_and_never_goes_back(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with run_up(machine, data=tmp_path / "data"):
        first = run_json(machine, "clock", "show", *data)
        moved = run_json(machine, "clock", "advance", "30d", *data)
        assert moved.pop("changes") == []
        assert run_json(machine, "clock", "show", *data) == moved
    with run_up(machine, data=tmp_path / "data"):
        assert run_json(machine, "clock", "show", *data)["now"] == moved["now"] > first["now"]


def test_privileged_port_is_reported() -> None:
    denied = OSError(errno.EACCES, "Permission denied")
    error = ListenFailed("127.0.0.1", 80, "the operator API", denied, "choose another address")
    said = "the operator API: cannot listen on 127.0.0.1:80: ports below 1024 need root; choose another address"
    assert str(error) == said


def test_ephemeral_service_is_found_and_leaves_no_data(machine: Machine) -> None:
    with run_up(machine) as service:
        directory = service.data
        assert directory.is_relative_to(machine.runtime)
        assert len(run_json(machine, "vm", "list")) == 15
        assert len(run_json(machine, "vm", "list", "--data", str(directory))) == 15
    assert list(machine.runtime.rglob("*")) == [machine.runtime / "forewarn"]
    assert not (machine.home / ".local").exists()


def test_several_ephemeral_services_are_ambiguous(machine: Machine) -> None:
    with run_up(machine) as first, run_up(machine) as second:
        ambiguous = run(machine, "vm", "list")
        assert ambiguous.code == 2
        assert str(first.data) in ambiguous.stderr
        assert str(second.data) in ambiguous.stderr
        listed = run_json(machine, "vm", "list", "--data", str(second.data))
        assert {vm["guest_url"] for vm in listed} == set(second.guest_urls.values())


def test_speed_divides_notice_but_not_the_clock(machine: Machine) -> None:
    with run_up(machine, manual_time=False, FOREWARN_SPEED="3600") as service:
        run_json(machine, "event", "schedule", "Freeze", "db-0", "--duration", "1h")
        url = service.guest_urls["db-0/db-0"]
        seen = list(incarnations(url, until=4))
        assert seen == sorted(seen)


def incarnations(url: str, *, until: int) -> Any:
    """Poll a document until it has this incarnation: announced is 2, started 3, gone 4."""
    etag = ""
    path = f"{EVENTS}&wait=60"
    while True:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
        connection.request("GET", path, headers={"Metadata": "true", "If-None-Match": etag})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status == 200:
            etag = answer.headers["ETag"]
            yield json.loads(body)["DocumentIncarnation"]
            if json.loads(body)["DocumentIncarnation"] >= until:
                return


def test_busy_operator_port_is_reported(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run(machine, "up", "--ephemeral", "--listen", "127.0.0.1:0", "--operator", f"127.0.0.1:{port}")
    assert (ended.code, ended.stderr) == (
        3,
        (
            f"forewarn: the operator API: cannot listen on 127.0.0.1:{port}: already in use by another program; "
            "stop that program, or choose another address with --operator HOST:PORT (port 0: any free port)\n"
        ),
    )
    assert list((machine.runtime / "forewarn").iterdir()) == []


def test_busy_guest_port_is_reported_and_not_saved(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run(machine, "up", *data, "--listen", f"127.0.0.1:{port}", "--operator", "127.0.0.1:0")
    assert (ended.code, ended.stderr) == (
        3,
        (
            f"forewarn: VM batch/batch_0: cannot listen on 127.0.0.1:{port}: already in use by another program; "
            "stop that program, or choose another first port for VMs with --listen HOST:PORT (port 0: any free ports)\n"
        ),
    )
    with run_up(machine, data=tmp_path / "data", manual_time=False) as service:
        assert len(service.guest_urls) == 15


def test_busy_saved_guest_port_is_reported(machine: Machine, tmp_path: Path) -> None:
    """The other VMs are served."""
    data = ("--data", str(tmp_path / "data"))
    with run_up(machine, data=tmp_path / "data", manual_time=False) as service:
        port = urlsplit(service.guest_urls["web/web-0"]).port
    with (
        socket.create_server((LOOPBACK, port or 0)),
        run_up(machine, data=tmp_path / "data", manual_time=False) as service,
    ):
        busy = run(machine, "doctor", "web-0", *data)
        other = run(machine, "doctor", "web-1", *data)
    assert f"cannot listen on {LOOPBACK}:{port}: already in use by another program" in busy.stdout
    assert "already in use" not in other.stdout
    assert (busy.code, other.code) == (1, 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--listen", "0.0.0.0:0"), "--listen: listen takes a loopback address"),
        (("--speed", "fast"), "--speed: speed takes a number above 0, at most 1000000, not 'fast'"),
        (("--data", "d", "--ephemeral"), "--data and --ephemeral: data and ephemeral are mutually exclusive"),
        (("--config", "gone.toml"), "--config: gone.toml: cannot be read: No such file or directory"),
        (("--fleet", "gone.toml"), "gone.toml: cannot be read: No such file or directory"),
        (("--fleet", "bad.toml"), 'bad.toml:1: scopes[0].kind: "pool" is not allowed: use "standalone"'),
        (("--fleet", "binary.toml"), "binary.toml: invalid TOML: the file is not UTF-8"),
    ],
    ids=["beyond loopback", "value", "contradiction", "no settings", "no fleet", "bad fleet", "binary fleet"],
)
def test_invalid_settings_are_usage_errors(machine: Machine, options: tuple[str, ...], complaint: str) -> None:
    (machine.home / "bad.toml").write_text('scopes = [{ name = "a", kind = "pool" }]')
    (machine.home / "binary.toml").write_bytes(b"\xff\xfe")
    ended = run(machine, "up", *FREE_PORTS, *options)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"forewarn: {complaint}")


def test_invalid_fleet_file_leaves_the_directory_empty(machine: Machine, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('scopes = [{ name = "a", kind = "pool" }]')
    options = ("--data", str(tmp_path / "data"), "--fleet", str(fleet))
    assert run(machine, "up", *FREE_PORTS, *options).code == 2
    fleet.write_text('scopes = [{ name = "a", kind = "standalone" }]')
    with run_up(machine, data=tmp_path / "data", fleet=fleet) as service:
        assert set(service.guest_urls) == {"a/a"}


def test_unusable_data_directory_is_refused(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run(machine, "up", *FREE_PORTS, "--data", str(tmp_path / "file"))
    assert (ended.code, ended.stderr) == (
        3,
        f"forewarn: {tmp_path / 'file'} is a file, not a directory: choose another --data\n",
    )
    assert "Traceback" not in ended.stderr
