"""`forewarn up`: how it starts, what it leaves behind, how it ends, and how it goes on."""

import errno
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.guest.vm_listeners import ListenFailed
from tests.support.program import FREE_PORTS, GUARD, LOOPBACK, PROGRAM, Machine, UpProcess

pytestmark = pytest.mark.process

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def get(url: str, path: str, **headers: str) -> tuple[int, Any]:
    """Ask a guest's endpoint; return status and JSON."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
    try:
        connection.request("GET", path, headers={"Metadata": "true"} | headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_every_vm_of_the_demonstration_finds_itself_at_its_url(machine: Machine) -> None:
    with machine.up("--ephemeral") as service:
        assert len(service.guest_urls) == len(set(service.guest_urls.values())) == 15
        for vm, url in service.guest_urls.items():
            assert get(url, EVENTS) == (200, {"DocumentIncarnation": 1, "Events": []})
            _, compute = get(url, "/metadata/instance/compute?api-version=2021-02-01")
            assert (compute["name"], compute["location"]) == (vm.partition("/")[2], "westeurope")


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
def test_it_ends_in_order_and_leaves_only_its_data(machine: Machine, tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    with machine.up("--data", str(data)) as service:
        described = json.loads((data / "service.json").read_text())
        assert (described["pid"], described["operator_url"]) == (service.process.pid, service.ready["operator_url"])
        assert service.stop(number) == 0
    assert service.stderr.splitlines()[-2:] == ["Ending.", "Ended."]
    assert {path.name for path in data.iterdir()} == {"forewarn.db", "forewarn.lock", "preset", "token"}


def test_token_is_for_the_owner_alone_and_nowhere_else(machine: Machine, tmp_path: Path) -> None:
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


def test_token_that_others_can_read_is_pointed_out(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        pass
    (tmp_path / "data/token").chmod(0o644)
    with machine.up(*data) as second:
        pass
    warning = f"Others can read {tmp_path / 'data/token'}: close it with chmod 600.\n"
    assert (warning in first.stderr, warning in second.stderr) == (False, True)


def test_second_start_goes_on_where_the_first_was(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        scheduled = machine.run_json("event", "schedule", "Reboot", "web-0", "--in", "20m", *data)
    with machine.up(*data) as second:
        assert machine.run_json("event", "list", *data) == scheduled["events"]
        assert second.guest_urls == first.guest_urls
        assert get(second.guest_urls["web/web-5"], EVENTS)[1]["Events"][0]["EventId"] == scheduled["created"][0]["id"]


def test_second_start_says_what_stays_as_it_was(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        machine.run_json("event", "schedule", "Reboot", "web-0", "web-1", "--in", "20m", *data)
        ports = [urlsplit(url).port or 0 for url in first.guest_urls.values()]
    with machine.up(*data, "--listen", f"{LOOPBACK}:1024") as second:
        assert second.guest_urls == first.guest_urls
    kept = f"VMs keep the ports that they were given, from {min(ports)} on; {LOOPBACK}:1024 is for new ones.\n"
    open_events = "It goes on with 2 open events (`forewarn event list`).\n"
    assert ("VMs keep" in first.stderr, "It goes on" in first.stderr) == (False, False)
    assert (kept in second.stderr, open_events in second.stderr) == (True, True), second.stderr


def test_killed_service_goes_on_too(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as first:
        scheduled = machine.run_json("event", "schedule", "Reboot", "web-0", "--in", "20m", *data)
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / "data/service.json").exists()
    unreachable = machine.run("event", "list", *data)
    assert (unreachable.returncode, unreachable.stderr) == (
        5,
        (
            f"forewarn: no service runs on {tmp_path / 'data'}: start one with `forewarn up` (the emulator) or "
            "`forewarn serve` (for real VMs), or say where it is with --url or --data\n"
        ),
    )
    with machine.up(*data) as second:
        assert machine.run_json("event", "list", *data) == scheduled["events"]
        assert second.guest_urls == first.guest_urls


def test_second_start_while_one_runs_says_so(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as service:
        second = machine.run("up", *FREE_PORTS, *data)
        assert (second.returncode, second.stdout) == (3, "")
        assert second.stderr == (
            f"forewarn: a service runs on {tmp_path / 'data'} already at {service.ready['operator_url']} "
            f"(process {service.process.pid}): use that one, end it, or choose another --data\n"
        )
        assert len(machine.run_json("vm", "list", *data)) == 15


def test_manual_time_stands_still_and_does_not_go_back(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up("--manual-time", *data):
        first = machine.run_json("clock", "show", *data)
        moved = machine.run_json("clock", "advance", "30d", *data)
        assert moved.pop("changes") == []
        assert machine.run_json("clock", "show", *data) == moved
    with machine.up("--manual-time", *data):
        assert machine.run_json("clock", "show", *data)["now"] == moved["now"] > first["now"]


def test_fleet_file_fills_an_empty_directory_only(machine: Machine, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('scopes = [{ name = "db", kind = "standalone" }]')
    other = tmp_path / "other.toml"
    other.write_text("this is not even read")
    data = ("--data", str(tmp_path / "data"))
    with machine.up("--fleet", str(small), *data) as first:
        assert set(first.guest_urls) == {"db/db"}
    assert "is not read" not in first.stderr
    with machine.up("--fleet", str(other), *data) as second:
        assert set(second.guest_urls) == {"db/db"}
    assert (
        f"There is a fleet already: {other} is not read. `forewarn fleet import {other}` takes it over; to begin with "
        "it, use another --data DIR, or --ephemeral.\n"
    ) in second.stderr
    with machine.up(*data) as third:
        assert set(third.guest_urls) == {"db/db"}
    assert "is not read" not in third.stderr


def test_fleet_without_vms_is_pointed_out(machine: Machine, tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text('scopes = [{ name = "web", kind = "availability-set", vms = [] }]')
    with machine.up("--ephemeral", "--fleet", str(empty)) as service:
        assert (service.guest_urls, service.ready["examples"]) == ({}, [])
    assert "The fleet has no VMs: its file lists none.\n" in service.stderr


def test_port_that_is_roots_is_called_so() -> None:
    denied = OSError(errno.EACCES, "Permission denied")
    error = ListenFailed("127.0.0.1", 80, "the operator API", denied, "choose another one")
    said = "cannot listen on port 80 of 127.0.0.1 for the operator API, ports below 1024 need root: choose another one"
    assert str(error) == said


def test_fleet_of_thousands_shows_progress(machine: Machine, tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_text("".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(3_000)))
    with machine.up("--fleet", str(large), "--data", str(tmp_path / "data"), "--listen", "none") as service:
        assert len(machine.run_json("vm", "list", "--data", str(tmp_path / "data"))) == 3_000
    assert re.search(r"Filling the fleet.*3000/3000", service.stderr)


def test_ephemeral_service_is_found_and_leaves_nothing(machine: Machine) -> None:
    with machine.up("--ephemeral") as service:
        directory = Path(service.ready["data"])
        assert directory.is_relative_to(machine.runtime)
        assert len(machine.run_json("vm", "list")) == 15
        assert len(machine.run_json("vm", "list", "--data", str(directory))) == 15
    assert list(machine.runtime.rglob("*")) == [machine.runtime / "forewarn"]
    assert not (machine.home / ".local").exists()


def test_of_several_ephemeral_services_one_has_to_be_named(machine: Machine) -> None:
    with machine.up("--ephemeral") as first, machine.up("--ephemeral") as second:
        ambiguous = machine.run("vm", "list")
        assert ambiguous.returncode == 2
        assert first.ready["data"] in ambiguous.stderr
        assert second.ready["data"] in ambiguous.stderr
        listed = machine.run_json("vm", "list", "--data", second.ready["data"])
        assert {vm["guest_url"] for vm in listed} == set(second.guest_urls.values())


def test_killed_ephemeral_service_is_swept_away_by_the_next(machine: Machine) -> None:
    with machine.up("--ephemeral") as killed:
        killed.stop(signal.SIGKILL)
    assert Path(killed.ready["data"]).exists()
    with machine.up("--ephemeral") as service:
        assert [path.name for path in (machine.runtime / "forewarn").iterdir()] == [Path(service.ready["data"]).name]


def test_data_are_in_the_users_own_directory_unless_said(machine: Machine) -> None:
    with machine.up() as service:
        assert service.ready["data"] == str(machine.home / ".local/share/forewarn")
        assert len(machine.run_json("vm", "list")) == 15
    assert "--data" not in service.ready["examples"][0]


def test_settings_file_is_obeyed_by_up_and_by_those_who_look_for_it(machine: Machine) -> None:
    (machine.home / "forewarn.toml").write_text('data = "kept"\n[policy]\nenforce_notice = true\n')
    with machine.up() as service:
        assert service.ready["data"] == str(machine.home / "kept")
        refused = machine.run("event", "schedule", "Reboot", "db-0", "--in", "1m")
        assert (refused.returncode, refused.stderr.startswith("forewarn: Reboot needs ")) == (3, True)


def test_speed_divides_notice_and_leaves_the_clock_alone(machine: Machine) -> None:
    with machine.up("--ephemeral", "--speed", "3600") as service:
        machine.run_json("event", "schedule", "Freeze", "db-0", "--duration", "1h")
        url = service.guest_urls["db-0/db-0"]
        seen = list(incarnations(url, until=4))
        assert seen == sorted(seen)


def incarnations(url: str, *, until: int) -> Any:
    """Follow a document until it has reached this incarnation; announced is 2, started 3, gone 4."""
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


def test_busy_operator_port_is_named(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = machine.run("up", "--ephemeral", "--listen", "127.0.0.1:0", "--operator", f"127.0.0.1:{port}")
    assert (ended.returncode, ended.stderr) == (
        3,
        (
            f"forewarn: cannot listen on port {port} of 127.0.0.1 for the operator API, another program does already: "
            "stop that one, or choose another one with --operator HOST:PORT (port 0: any free one)\n"
        ),
    )
    assert list((machine.runtime / "forewarn").iterdir()) == []


def test_busy_guest_port_is_named_and_not_kept(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = machine.run("up", *data, "--listen", f"127.0.0.1:{port}", "--operator", "127.0.0.1:0")
    assert (ended.returncode, ended.stderr) == (
        3,
        (
            f"forewarn: cannot listen on port {port} of 127.0.0.1 for VM batch/batch_0, another program does already: "
            "stop that one, or choose with --listen HOST:PORT where the ports of VMs begin (port 0: wherever some are "
            "free)\n"
        ),
    )
    with machine.up(*data) as service:
        assert len(service.guest_urls) == 15


def test_kept_guest_port_that_is_busy_is_named(machine: Machine, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with machine.up(*data) as service:
        port = urlsplit(service.guest_urls["web/web-0"]).port
    with socket.create_server((LOOPBACK, port or 0)):
        ended = machine.run("up", *data, *FREE_PORTS)
    assert ended.returncode == 3
    assert f"port {port} of {LOOPBACK} for VM web/web-0, another program does already" in ended.stderr
    assert "use another data directory, because a VM keeps its port" in ended.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--listen", "0.0.0.0:0"), "--listen: listen takes a loopback address"),
        (("--speed", "fast"), "--speed: speed takes a number above 0, at most 1000000, not 'fast'"),
        (("--data", "d", "--ephemeral"), "--data and --ephemeral: a data directory, or none (ephemeral)?"),
        (("--config", "gone.toml"), "gone.toml: No such file or directory"),
        (("--fleet", "gone.toml"), "gone.toml: cannot be read: No such file or directory"),
        (("--fleet", "bad.toml"), 'bad.toml: scopes[0].kind: "pool" is not allowed: use "standalone"'),
        (("--fleet", "binary.toml"), "binary.toml: this is not TOML: it is not even UTF-8"),
    ],
    ids=["beyond loopback", "value", "contradiction", "no settings", "no fleet", "bad fleet", "binary fleet"],
)
def test_what_cannot_be_meant_is_a_usage_error(machine: Machine, options: tuple[str, ...], complaint: str) -> None:
    (machine.home / "bad.toml").write_text('scopes = [{ name = "a", kind = "pool" }]')
    (machine.home / "binary.toml").write_bytes(b"\xff\xfe")
    ended = machine.run("up", *FREE_PORTS, *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"forewarn: {complaint}")


def test_bad_fleet_file_leaves_a_directory_that_can_still_be_filled(machine: Machine, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('scopes = [{ name = "a", kind = "pool" }]')
    options = ("--data", str(tmp_path / "data"), "--fleet", str(fleet))
    assert machine.run("up", *FREE_PORTS, *options).returncode == 2
    fleet.write_text('scopes = [{ name = "a", kind = "standalone" }]')
    with machine.up(*options) as service:
        assert set(service.guest_urls) == {"a/a"}


def test_data_directory_that_cannot_be_used_is_refused(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = machine.run("up", *FREE_PORTS, "--data", str(tmp_path / "file"))
    assert (ended.returncode, ended.stderr) == (
        3,
        f"forewarn: {tmp_path / 'file'} is a file, not a directory: choose another --data\n",
    )
    assert "Traceback" not in ended.stderr


def test_second_ctrl_c_does_not_wait(machine: Machine) -> None:
    """A request whose body never comes keeps the service from ending for a while."""
    with machine.up("--ephemeral") as service:
        parts = urlsplit(service.ready["operator_url"])
        token = Path(service.ready["token_file"]).read_text().strip()
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as slow:
            head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
            slow.sendall(head.encode())
            assert machine.run("clock", "show").returncode == 0
            service.process.send_signal(signal.SIGINT)
            assert service.process.stderr is not None
            while service.process.stderr.readline() != "Ending.\n":
                assert service.process.poll() is None
            assert service.stop(signal.SIGINT) == -signal.SIGINT


def test_missing_extra_is_named_with_the_line_to_type(machine: Machine) -> None:
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
    """The lines that are printed at the start work as they are, in a shell that knows nothing of the environment."""

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

    def test_lines_name_the_program_from_anywhere(self, machine: Machine) -> None:
        with machine.up("--ephemeral") as service:
            schedule, ask, approve = service.ready["examples"]
        assert schedule.startswith(f"{PROGRAM} event schedule Reboot web-0 --in 15m --data ")
        assert (ask[:5], approve[:5], os.linesep in approve) == ("curl ", "curl ", False)
