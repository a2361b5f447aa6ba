"""The commands that need a running service: output, connection and exit codes."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import InProcessMachine, UpService, run, run_up
from tests.support.program import GUARD, PROGRAM, Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 2, first_address = "10.0.0.1" }]

[[scopes]]
name = "shop-1"
kind = "cloud-service"
vms = [{ name = "FrontEnd_IN_0" }]

[[scopes]]
name = "shop-2"
kind = "cloud-service"
vms = [{ name = "FrontEnd_IN_0" }]

[[scopes]]
name = "batch"
kind = "placement-group"
scale_set = "batch"
priority = "low"
vms = [{ count = 40 }]
"""

GUID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")


class ServiceMachine(InProcessMachine):
    """A machine with an ephemeral service on manual time."""

    service: UpService

    def take_vm(self) -> str:
        """Return a VM that no other test uses."""
        self.used = getattr(self, "used", -1) + 1
        return f"batch_{self.used}"


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    machine = ServiceMachine(tmp_path_factory.mktemp("shop"))
    fleet = machine.home / "fleet.toml"
    fleet.write_text(FLEET)
    with run_up(machine, fleet=fleet) as machine.service:
        yield machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return InProcessMachine(tmp_path)


def test_vms_are_listed_as_a_table(service_machine: ServiceMachine) -> None:
    lines = service_machine.run("vm", "list", "--scope", "web").stdout.splitlines()
    urls = service_machine.service.guest_urls
    columns = ["VM", "SCOPE", "KIND", "HOST", "UPDATE DOMAIN", "FAULT DOMAIN", "PRIORITY", "ADDRESS", "GUEST URL"]
    assert [re.split(r"  +", line) for line in lines] == [
        columns,
        ["web-0", "web", "availability-set", "hv-0", "0", "0", "regular", "10.0.0.1", urls["web/web-0"]],
        ["web-1", "web", "availability-set", "hv-1", "1", "0", "regular", "10.0.0.2", urls["web/web-1"]],
    ]


def test_vms_are_listed_as_json(service_machine: ServiceMachine) -> None:
    vms = service_machine.run_json("vm", "list")
    assert {f"{vm['scope']}/{vm['name']}": vm["guest_url"] for vm in vms} == service_machine.service.guest_urls
    assert [vm["name"] for vm in vms if vm["scope"] == "batch"] == [f"batch_{n}" for n in range(40)]


def test_event_is_scheduled_listed_and_completed(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    made = service_machine.run(
        "event", "schedule", "reboot", vm, "--in", "20m", "--duration", "90s", "--description", "kernel"
    )
    header, line = (re.split(r"  +", line) for line in made.stdout.splitlines())
    assert (made.returncode, made.stderr) == (0, "")
    assert header == ["EVENT", "STATUS", "TYPE", "SCOPE", "VMS", "NOT BEFORE", "WAITS FOR"]
    assert GUID.fullmatch(line[0])
    assert line[1:5] == ["Scheduled", "Reboot", "batch", vm]
    assert line[6] == f"not before {line[5]}, or earlier if any VM of the scope approves"
    listed = service_machine.run("event", "list", "--vm", vm).stdout.splitlines()
    assert [re.split(r"  +", each) for each in listed] == [header, line]
    (event,) = service_machine.run_json("event", "list", "--vm", vm)
    assert (event["id"], event["duration"], event["description"]) == (line[0], "1m30s", "kernel")
    service_machine.run_json("clock", "advance", "20m")
    assert service_machine.run("event", "list", "--vm", vm).stdout.splitlines()[1].endswith(f"the work on {vm}, begun")
    service_machine.run_json("clock", "advance", "1m")
    assert service_machine.run_json("event", "list", "--vm", vm) == []


@pytest.mark.parametrize("columns", [40, 80, 100, 120, 200])
def test_terminal_shows_short_ids_and_whole_urls(service_machine: ServiceMachine, columns: int) -> None:
    (made,) = service_machine.run_json("event", "schedule", "Reboot", "web-1", "--in", "20m")["created"]
    events = service_machine.run_on_terminal("event", "list", "--scope", "web", columns=columns)
    (event,) = (line for line in events if line.startswith(f"{made['id'][:8]}  "))
    assert service_machine.run_json("event", "show", made["id"][:8].lower())["id"] == made["id"]
    (explanation,) = {
        "; ".join(event["explanation"])
        for event in service_machine.run_json("event", "list")
        if event["id"] == made["id"]
    }
    assert "web-1" in event
    below = "" if columns == 200 else " ".join(events[events.index(event) + 1 :])
    assert explanation in " ".join(f"{event} {below}".split())
    vms = service_machine.run_on_terminal("vm", "list", "--scope", "web", columns=columns)
    for vm in ("web-0", "web-1"):
        assert [line.split()[-1] for line in vms if line.startswith(vm)] == [
            service_machine.service.guest_urls[f"web/{vm}"]
        ]
    if columns >= 80:
        assert max(map(len, events + vms)) <= columns


def test_narrow_terminal_names_dropped_columns(service_machine: ServiceMachine) -> None:
    vms = service_machine.run_on_terminal("vm", "list", "--scope", "web", columns=80)
    assert vms[0].split() == ["VM", "SCOPE", "HOST", "UPDATE", "DOMAIN", "ADDRESS", "GUEST", "URL"]
    assert vms[-1] == "Too narrow for KIND, FAULT DOMAIN, PRIORITY; -o json shows everything."


@pytest.mark.parametrize("type_", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_every_type_can_be_scheduled(service_machine: ServiceMachine, type_: str) -> None:
    (event,) = service_machine.run_json("event", "schedule", type_, service_machine.take_vm())["events"]
    assert (event["type"], event["status"], event["source"]) == (type_, "Scheduled", "Platform")


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (("--user",), "source", "User"),
        (("--source", "user"), "source", "User"),
        (("--failure",), "status", "Started"),
        (("--at", "2100-01-31T12:15+02:00"), None, 3),
        (("--reason", "ticket 7"), "reason", "ticket 7"),
    ],
    ids=["user", "source", "failure", "at", "why"],
)
def test_options_have_their_effect(
    service_machine: ServiceMachine, options: tuple[str, ...], field: str | None, value: str | int
) -> None:
    ended = service_machine.run("event", "schedule", "Reboot", service_machine.take_vm(), *options, "-o", "json")
    if field is None:
        assert (ended.returncode, "--at must be at most" in ended.stderr) == (value, True)
    else:
        assert json.loads(ended.stdout)["events"][0][field] == value


def test_same_key_creates_no_second_event(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    first, again = (
        service_machine.run_json("event", "schedule", "Reboot", vm, "--key", f"once-{vm}")["created"] for _ in range(2)
    )
    assert first == again
    assert service_machine.run("event", "schedule", "Freeze", vm, "--key", f"once-{vm}").returncode == 3


def test_time_can_have_any_zone(service_machine: ServiceMachine) -> None:
    now = service_machine.run_json("clock", "show")["now"]
    day = now[:10]
    (event,) = service_machine.run_json(
        "event", "schedule", "Freeze", service_machine.take_vm(), "--at", f"{day}T23:59:59-01:00"
    )["events"]
    assert event["not_before"].endswith("T00:59:59Z")


def test_request_over_several_hosts_shows_each_event(service_machine: ServiceMachine) -> None:
    lines = service_machine.run(
        "event", "schedule", "Freeze", "web-0", "web-1", "shop-1/FrontEnd_IN_0"
    ).stdout.splitlines()
    assert [re.split(r"  +", line)[3:5] for line in lines[1:]] == [
        ["web", "web-0"],
        ["web", "web-1"],
        ["shop-1", "FrontEnd_IN_0"],
    ]


def test_connection_options_can_come_from_the_environment(service_machine: ServiceMachine) -> None:
    token = Path(service_machine.service.ready["token_file"]).read_text().strip()
    reached = {
        "FOREWARN_URL": service_machine.service.ready["operator_url"],
        "FOREWARN_TOKEN": token,
        "FOREWARN_OUTPUT": "json",
    }
    ended = service_machine.run("vm", "list", HOME="/nowhere", XDG_RUNTIME_DIR="/nowhere", **reached)
    assert {vm["scope"] for vm in json.loads(ended.stdout)} == {"web", "shop-1", "shop-2", "batch"}


def test_token_can_be_in_a_file(service_machine: ServiceMachine, tmp_path: Path) -> None:
    ready = service_machine.service.ready
    reached = ("--url", ready["operator_url"], "--token-file", ready["token_file"])
    assert service_machine.run_json("clock", "show", *reached)["manual"]
    assert service_machine.run_json("clock", "show", *reached[:2], FOREWARN_TOKEN_FILE=ready["token_file"])["manual"]
    flag = Path(ready["token_file"]).read_text().strip()
    assert service_machine.run_json("clock", "show", *reached[:2], "--token", flag)["manual"]


EXITS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "done": (("clock", "show"), 0, ""),
    "version": (("--version",), 0, ""),
    "unknown command": (("vm", "launch"), 2, "launch"),
    "unknown option": (("vm", "list", "--all"), 2, "--all"),
    "missing argument": (("event", "show"), 2, "EVENT"),
    "no VMs": (("event", "schedule", "Reboot"), 2, "specify VM, --host or --scope"),
    "no VMs fail": (("vm", "fail"), 2, "specify either VM or --host"),
    "VMs and host fail": (("vm", "fail", "web-0", "--host", "hv-0"), 2, "specify either VM or --host"),
    "predicted reboot": (("vm", "fail", "web-0", "--predicted", "3d", "--type", "Reboot"), 2, "always a Redeploy"),
    "no change": (("vm", "change", "web-0"), 2, "specify what to change"),
    "unknown field": (("vm", "change", "web-0", "--clear", "colour"), 2, "colour is not one of host, addresses, prio"),
    "invalid tag": (
        ("vm", "change", "web-0", "--tag", "team"),
        2,
        "--tag: 'team' is not a tag; write NAME=VALUE, such as team=web",
    ),
    "hold without a reason": (("hold", "--scope", "web"), 2, "specify REASON"),
    "no outcome": (("event", "resolve", "1234", "--reason", "seen"), 2, "specify the outcome: --done if"),
    "invalid event id": (("event", "show", "web-0"), 2, "EVENT: web-0 is not the id of an event; specify at least"),
    "short event id": (("event", "show", "12A"), 2, "at least 4 characters"),
    "invalid past time": (
        ("journal", "--since", "lately"),
        2,
        "--since: 'lately' is not a time; write it like 2h (ago)",
    ),
    "at and since": (
        ("journal", "--at", "03:12", "--since", "2h"),
        2,
        "--at and --since or --until are mutually exclusive",
    ),
    "unknown role": (("token", "create", "me", "--role", "boss"), 2, "'boss' is not one of viewer, operator and admin"),
    "missing fleet file": (
        ("fleet", "import", "/no/fleet.toml"),
        2,
        "cannot read /no/fleet.toml: No such file or directory",
    ),
    "missing certificates": (
        ("clock", "show", "--url", "https://127.0.0.1:1", "--token", "x", "--ca", "/no"),
        5,
        "/no",
    ),
    "unknown type": (
        ("event", "schedule", "Explode", "web-0"),
        2,
        "'Explode' is not one of Freeze, Reboot, Redeploy, P",
    ),
    "mistyped type": (("event", "schedule", "rebot", "web-0"), 2, "Did you mean Reboot?"),
    "unknown source": (
        ("event", "schedule", "Reboot", "web-0", "--source", "me"),
        2,
        "'me' is not one of Platform and User",
    ),
    "unknown output": (("vm", "list", "-o", "xml"), 2, "xml"),
    "invalid duration": (("event", "schedule", "Reboot", "web-0", "--in", "soon"), 2, "--in: 'soon' is not a duration"),
    "invalid duration of the event": (
        ("event", "schedule", "Reboot", "web-0", "--duration", "9"),
        2,
        "--duration: '9' is not",
    ),
    "invalid time": (("event", "schedule", "Reboot", "web-0", "--at", "tomorrow"), 2, "--at: 'tomorrow' is not a time"),
    "time without zone": (
        ("event", "schedule", "Reboot", "web-0", "--at", "2026-01-31T10:15"),
        2,
        "has no time zone; add Z",
    ),
    "past": (("event", "schedule", "Reboot", "web-0", "--at", "2020-01-31T10:15Z"), 2, "to start at once, use --now"),
    "no duration of advance": (
        ("clock", "advance"),
        2,
        "specify DURATION, such as `forewarn clock advance 15m`, or --to-next",
    ),
    "duration and to-next": (
        ("clock", "advance", "5m", "--to-next"),
        2,
        "DURATION (5m) and --to-next are mutually exclusive",
    ),
    "negative duration": (("clock", "advance", "-5m"), 2, "DURATION: the clock cannot go back (-5m)"),
    "mistyped option": (("clock", "advance", "--to-nxt"), 2, "no such option: --to-nxt"),
    "invalid duration of advance": (("clock", "advance", "far"), 2, "'far' is not a duration"),
    "URL without token": (("clock", "show", "--url", "http://127.0.0.1:1"), 2, "--url requires a token"),
    "refused by the rules": (("event", "schedule", "Preempt", "web-0"), 3, "web-0 has regular priority"),
    "ambiguous": (("event", "schedule", "Reboot", "FrontEnd_IN_0"), 3, "use shop-1/FrontEnd_IN_0 or shop-2/Fr"),
    "in and at": (
        ("event", "schedule", "Reboot", "web-0", "--in", "1m", "--at", "2026-01-31T10:15Z"),
        2,
        "--in and --at are mutually exclusive",
    ),
    "unknown VM": (
        ("event", "schedule", "Reboot", "nothing"),
        4,
        "there is no VM nothing; `forewarn vm list` shows them",
    ),
    "unknown scope": (("vm", "list", "--scope", "nothing"), 4, "there is no scope nothing"),
    "unknown host": (("host", "show", "nothing"), 4, "no VM is on a host nothing; `forewarn host list` shows them"),
    "unknown event": (("event", "show", "12345678-0000-0000-0000-000000000000"), 4, "no event 12345678-0000"),
    "unknown id prefix": (("event", "show", "1234ABCD1234ABCD"), 4, "unknown event: 1234ABCD1234ABCD…"),
    "unknown token": (("token", "revoke", "tk_nothing"), 4, "`forewarn token list` shows them"),
    "unknown VM to show": (("vm", "show", "nothing"), 4, "`forewarn vm list` shows them"),
    "eviction of a regular VM": (("vm", "evict", "web-0"), 3, "web-0 has regular priority"),
    "existing scope": (("scope", "add", "web", "--kind", "availability-set"), 3, "web"),
    "no service": (("clock", "show", "--data", "/nowhere"), 5, "no service runs on /nowhere"),
    "invalid URL": (
        ("clock", "show", "--url", "localhost", "--token", "x"),
        2,
        "localhost is not the URL of a service",
    ),
    "missing token file": (
        ("clock", "show", "--url", "http://127.0.0.1:1", "--token-file", "/no"),
        2,
        "--token-file: no token",
    ),
}


@pytest.mark.parametrize("case", EXITS)
def test_exit_code_and_message(service_machine: ServiceMachine, case: str) -> None:
    arguments, code, said = EXITS[case]
    ended = run(service_machine, *arguments)
    assert (ended.code, said in ended.stderr) == (code, True), ended.stderr
    assert bool(ended.stdout) is (code == 0)


def test_wrong_token_is_refused_with_its_origin(service_machine: ServiceMachine) -> None:
    url = service_machine.service.ready["operator_url"]
    (service_machine.home / "wrong").write_text("wrong")
    for options, environment, origin in (
        ((), {"FOREWARN_TOKEN": "wrong"}, "FOREWARN_TOKEN"),
        ((), {"FOREWARN_TOKEN_FILE": "wrong"}, "FOREWARN_TOKEN_FILE"),
        (("--token", "wrong"), {"FOREWARN_TOKEN_FILE": "wrong"}, "--token"),
        (("--token-file", "wrong"), {}, "--token-file"),
    ):
        ended = run(service_machine, "clock", "show", "--url", url, *options, **environment)
        assert ended.code == 3
        assert ended.stderr.startswith(f"forewarn: {origin}: invalid, expired or revoked token; "), ended.stderr


def test_guest_port_is_not_accepted_as_operator_api(service_machine: ServiceMachine) -> None:
    ended = service_machine.run(
        "clock", "show", "--url", service_machine.service.guest_urls["web/web-0"], FOREWARN_TOKEN="x"
    )
    assert (ended.returncode, "is this a VM's port?" in ended.stderr) == (5, True)


def test_empty_results_write_a_message(machine: Machine) -> None:
    with run_up(machine):
        events = machine.run("event", "list")
        moved = machine.run("clock", "advance", "--to-next")
    assert (events.returncode, events.stdout, events.stderr) == (0, "", "No open events.\n")
    assert (moved.returncode, moved.stderr) == (0, "No open event changes with time alone.\n")


def test_url_without_a_service_is_unreachable(service_machine: ServiceMachine) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        ended = service_machine.run("clock", "show", "--url", url, FOREWARN_TOKEN="x")
    assert (ended.returncode, ended.stderr) == (
        5,
        f"forewarn: cannot reach {url}: Connection refused; is it running?\n",
    )


@pytest.mark.process
def test_closed_pipe_is_not_an_error(service_machine: ServiceMachine) -> None:
    line = f"'{PROGRAM}' vm list | head -n 1"
    ended = subprocess.run(
        ["bash", "-c", line],
        env=service_machine.environment,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert (ended.stdout.split()[:2], ended.stderr) == (["VM", "SCOPE"], "")


def test_variable_of_another_program_is_not_used(machine: Machine) -> None:
    """Build systems often set a variable with the version of the build."""
    ended = machine.run("vm", "list", FOREWARN_VERSION="1")
    assert (ended.returncode, ended.stdout) == (5, "")


def test_commands_write_only_below_home(machine: Machine) -> None:
    assert machine.run("vm", "list").returncode == 5
    assert [path.name for path in machine.home.iterdir()] == ["run"]
    assert os.listdir(machine.runtime) == []
