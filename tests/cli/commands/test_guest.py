"""`forewarn guest …` with a real service: list, watch and approve.

Processes: for Ctrl-C, for a terminal that another thread draws on, for a service that stops, and for an install without
the packages of the service.
"""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import CommandResult, InProcessMachine, Script, UpService, interrupt, run_live, run_up
from tests.client.faulty_server import responds, run_faulty_server
from tests.client.scripted_flow import document, event
from tests.repository.test_contents import SERVER_PARTS
from tests.support.program import GUARD, PROGRAM, Machine, UpProcess

SCOPES = 32
"""Each test has its own scope with two VMs; commands run on the first."""

FLEET = "".join(
    f"""
[[scopes]]
name = "set-{n}"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{{ name = "web-{{n}}", count = 2 }}]
"""
    for n in range(SCOPES)
)

TIME_LEFT = r"(\d\dm|1h(\d+m)?)(\d+s)?"
"""The rest of an hour by the VM's clock. The service's clock stands still, except that tests advance it by minutes."""

COUNTDOWN = re.compile(rf"Reboot of web-0 in {TIME_LEFT}")
COLOUR = re.compile(r"\x1b\[3\dm")
COMMANDS = ["guest list", "guest watch", "guest approve"]


class Vm:
    """The VM web-0 of a scope, which also has web-1; operators use the same machine."""

    def __init__(self, machine: Machine, service: UpService | UpProcess, scope: str) -> None:
        self._machine, self._scope = machine, scope
        self.service = service
        self.endpoint = service.guest_urls[f"{scope}/web-0"]
        self.environment = machine.environment | {"FOREWARN_ENDPOINT": self.endpoint}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self._machine.run(*arguments, **(self.environment | environment))

    def run_json(self, *arguments: str) -> Any:
        """Run a command that must succeed, and return its JSON."""
        return self._machine.run_json(*arguments, **self.environment)

    def told_of(self, *types: str, vm: str = "web-0") -> list[str]:
        """Schedule events for a VM, an hour ahead; return their ids."""
        name = f"{self._scope}/{vm}"
        made = (self.run_json("event", "schedule", type_, name, "--in", "1h")["created"] for type_ in types)
        return [each["id"] for (each,) in made]

    def statuses(self) -> dict[str, str]:
        """Return the status of each open event, as operators see it."""
        return {event["id"]: event["status"] for event in self.run_json("event", "list", "--scope", self._scope)}

    def watch_one_line(self, *options: str) -> CommandResult:
        """Run `forewarn guest watch`, and interrupt it when it has written a line."""

        def script() -> Script:
            yield "\n"
            interrupt()

        return run_live(self._machine, "guest", "watch", *options, script=script(), environment=self.environment)

    @contextmanager
    def watching(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """Run `forewarn guest watch` for a while."""
        with subprocess.Popen(
            [PROGRAM, "guest", "watch", *options],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def write_fleet(machine: Machine) -> Path:
    fleet = machine.home / "fleet.toml"
    fleet.write_text(FLEET)
    return fleet


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return InProcessMachine(tmp_path)


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Vm]]:
    """VMs that no other test uses."""
    machine = InProcessMachine(tmp_path_factory.mktemp("guests"))
    with run_up(machine, fleet=write_fleet(machine)) as service:
        yield (Vm(machine, service, f"set-{n}") for n in range(SCOPES))


@pytest.fixture
def vm(vms: Iterator[Vm]) -> Vm:
    return next(vms)


def columns(table: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in table.splitlines()]


def test_events_are_listed_as_a_table(vm: Vm) -> None:
    (mine,), (other,) = vm.told_of("Reboot"), vm.told_of("Freeze", vm="web-1")
    listed = vm.run("guest", "list")
    header, first, second = columns(listed.stdout)
    assert listed.stderr == ""
    assert header == [
        *("EVENT", "STATUS", "TYPE", "MINE", "VMS", "TIME LEFT", "NOT BEFORE", "LASTS", "SOURCE", "DESCRIPTION"),
    ]
    assert first[:5] == [mine, "Scheduled", "Reboot", "yes", "web-0"]
    assert second[:5] == [other, "Scheduled", "Freeze", "no", "web-1"]
    assert re.fullmatch(TIME_LEFT, first[5])
    assert first[-2:] == ["Platform", "The VM restarts because its host is maintained."]


def test_events_are_listed_as_json(vm: Vm) -> None:
    (id_,) = vm.told_of("Reboot")
    (event,) = vm.run_json("guest", "list")
    assert re.fullmatch(TIME_LEFT, event.pop("time_left"))
    (known,) = (each for each in vm.run_json("event", "list") if each["id"] == id_)
    assert event == {
        "id": id_,
        "status": "Scheduled",
        "type": "Reboot",
        "resources": ["web-0"],
        "mine": True,
        "not_before": known["not_before"],
        "duration": None,
        "source": "Platform",
        "description": "The VM restarts because its host is maintained.",
    }


def test_list_mine_shows_only_own_events(vm: Vm) -> None:
    (mine,) = vm.told_of("Reboot")
    vm.told_of("Freeze", vm="web-1")
    assert [event["id"] for event in vm.run_json("guest", "list", "--mine")] == [mine]
    assert vm.run_json("guest", "list", "--mine", "--name", "_WEB-1")[0]["type"] == "Freeze"


def test_list_without_events_writes_a_message(vm: Vm) -> None:
    listed = vm.run("guest", "list")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "No events.\n")
    assert vm.run_json("guest", "list") == []


def test_event_is_approved_by_its_id_in_any_case(vm: Vm) -> None:
    first, second = vm.told_of("Reboot", "Freeze")
    approved = vm.run("guest", "approve", first.lower())
    assert (approved.returncode, approved.stderr) == (0, "")
    assert [line[:2] for line in columns(approved.stdout)] == [["EVENT", "STATUS"], [first, "Started"]]
    assert vm.statuses() == {first: "Started", second: "Scheduled"}


def test_several_events_are_approved_at_once(vm: Vm) -> None:
    first, second = vm.told_of("Reboot", "Freeze")
    approved = vm.run_json("guest", "approve", second, first)
    assert [(event["id"], event["status"]) for event in approved] == [(second, "Started"), (first, "Started")]


def test_approve_mine_approves_only_own_events(vm: Vm) -> None:
    (mine,), (other,) = vm.told_of("Reboot"), vm.told_of("Freeze", vm="web-1")
    assert [event["id"] for event in vm.run_json("guest", "approve", "--mine")] == [mine]
    assert vm.statuses() == {mine: "Started", other: "Scheduled"}


def test_approved_event_that_still_waits_is_shown_as_scheduled(vm: Vm) -> None:
    """Planned maintenance takes one update domain at a time, approved or not."""
    (mine,), (other,) = vm.told_of("Reboot"), vm.told_of("Reboot", vm="web-1")
    approved = vm.run_json("guest", "approve", "--all")
    assert {event["id"]: event["status"] for event in approved} == {mine: "Started", other: "Scheduled"}


def test_event_can_be_approved_by_the_beginning_of_its_id(vm: Vm) -> None:
    mine, other = vm.told_of("Reboot", "Freeze")
    assert [event["id"] for event in vm.run_json("guest", "approve", mine[:8].lower())] == [mine]
    assert vm.statuses() == {mine: "Started", other: "Scheduled"}


@pytest.mark.parametrize(("given", "code", "said"), [("", 2, "EVENT:  is ambiguous"), ("0000FFFF0000", 4, "no event")])
def test_beginning_of_several_or_no_ids_approves_nothing(vm: Vm, given: str, code: int, said: str) -> None:
    ids = vm.told_of("Reboot", "Freeze")
    ended = vm.run("guest", "approve", given)
    assert (ended.returncode, said in ended.stderr) == (code, True), ended.stderr
    assert vm.statuses() == dict.fromkeys(ids, "Scheduled")


def test_approving_without_events_is_not_an_error(vm: Vm) -> None:
    ended = vm.run("guest", "approve", "--all")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "No events to approve.\n")
    assert vm.run_json("guest", "approve", "--mine") == []


def test_approving_an_ended_event_is_not_an_error(vm: Vm) -> None:
    (id_,) = vm.told_of("Freeze")
    vm.run("guest", "approve", id_)
    vm.run_json("clock", "advance", "1m")
    ended = vm.run("guest", "approve", id_)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", f"Event {id_} has already ended.\n")


def test_unknown_id_is_not_found_and_nothing_is_approved(vm: Vm) -> None:
    (id_,) = vm.told_of("Freeze")
    unknown = "00000000-0000-0000-0000-000000000000"
    ended = vm.run("guest", "approve", id_, unknown)
    said = f"forewarn: there is no event {unknown}; nothing was approved; `forewarn guest list` shows the events\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (4, "", said)
    assert vm.statuses() == {id_: "Scheduled"}


@pytest.mark.process
def test_every_change_is_a_line_of_json(vm: Vm) -> None:
    with vm.watching("-o", "json") as watch:
        assert watch.stdout is not None
        changes: list[dict[str, Any]] = []

        def next_change() -> tuple[str, str | None]:
            assert watch.stdout is not None
            changes.append(json.loads(watch.stdout.readline()))
            return changes[-1]["change"], changes[-1]["how"]

        (id_,) = vm.told_of("Freeze")
        assert next_change() == ("Appeared", None)
        vm.run_json("guest", "approve", id_)
        assert next_change() == ("Started", None)
        vm.run_json("clock", "advance", "1m")
        assert next_change() == ("Gone", "finished")
        watch.send_signal(signal.SIGINT)
        assert watch.communicate(timeout=GUARD) == ("", "Stopped watching.\n")
        assert watch.returncode == 0
    assert {change["event"]["id"] for change in changes} == {id_}
    assert [(change["event"]["status"], change["event"]["mine"]) for change in changes] == [
        ("Scheduled", True),
        ("Started", True),
        ("Started", True),
    ]


def test_every_change_is_a_line_of_text_without_colours(vm: Vm) -> None:
    (other,) = vm.told_of("Reboot", vm="web-1")
    watched = vm.watch_one_line()
    assert (watched.code, watched.stderr) == (0, "Stopped watching.\n")
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ  Appeared  {other}  Reboot     web-1  {TIME_LEFT} left\n",
        watched.stdout,
    )


def test_watch_mine_shows_only_own_changes(vm: Vm) -> None:
    vm.told_of("Freeze", vm="web-1")
    (mine,) = vm.told_of("Reboot")
    assert json.loads(vm.watch_one_line("--mine", "-o", "json").stdout)["event"]["id"] == mine


def seen_on_terminal(vm: Vm, is_enough: Callable[[str], object], **environment: str) -> str:
    """Watch on a terminal until the expected text appears, then press Ctrl-C. Return the whole output."""
    main, other = pty.openpty()
    termios.tcsetwinsize(other, (24, 120))
    process = subprocess.Popen(
        [PROGRAM, "guest", "watch"],
        env=vm.environment | {"TERM": "xterm"} | environment,
        stdin=other,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    seen, is_ending = "", False
    with os.fdopen(main, "rb", buffering=0) as terminal:
        while True:
            # Reading from a terminal fails when its last program has exited.
            try:
                seen += terminal.read(65_536).decode(errors="replace")
            except OSError:
                break
            if is_enough(seen) and not is_ending:
                is_ending = True
                process.send_signal(signal.SIGINT)
    assert process.wait(GUARD) == 0, seen
    return seen


@pytest.mark.process
def test_time_left_is_counted_down_on_a_terminal(vm: Vm) -> None:
    (id_,) = vm.told_of("Reboot")
    seen = seen_on_terminal(vm, lambda seen: len(set(COUNTDOWN.findall(seen))) >= 2)
    assert id_ in seen
    assert COLOUR.search(seen)
    assert "Stopped watching." in seen


@pytest.mark.process
def test_no_color_disables_colours(vm: Vm) -> None:
    vm.told_of("Reboot")
    assert not COLOUR.search(seen_on_terminal(vm, COUNTDOWN.search, NO_COLOR="1"))


@pytest.mark.process
def test_watch_on_a_terminal_without_events(vm: Vm) -> None:
    sentence = f"No events. Watching {vm.endpoint} until Ctrl-C."
    assert sentence in seen_on_terminal(vm, lambda seen: sentence in seen)


@pytest.mark.process
def test_watch_survives_an_outage_of_the_service(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.up("--ephemeral", "--manual-time", "--fleet", str(write_fleet(machine))) as service:
        vm = Vm(machine, service, "set-0")
        vm.told_of("Reboot")
        with vm.watching() as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            assert "Appeared" in watch.stdout.readline()
            assert service.stop(signal.SIGINT) == 0
            assert re.match(r"cannot reach http://.*; retrying in \d s\.", watch.stderr.readline())
            watch.send_signal(signal.SIGINT)
            assert watch.wait(GUARD) == 0


EXITS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no events": (("guest", "approve"), 2, "specify one or more EVENT, --mine or --all"),
    "id and all": (("guest", "approve", "X", "--all"), 2, "specify one or more EVENT"),
    "mine and all": (("guest", "approve", "--mine", "--all"), 2, "specify one or more EVENT"),
    "invalid endpoint": (
        ("guest", "list", "--endpoint", "https://here/there"),
        2,
        "forewarn: --endpoint: 'https://here/there' is not a metadata endpoint; write it like",
    ),
    "invalid duration": (("guest", "list", "--retry-for", "long"), 2, "--retry-for: 'long' is not a duration"),
    "unknown command": (("guest", "reboot"), 2, "reboot"),
}


@pytest.mark.parametrize("case", EXITS)
def test_wrong_usage_is_explained(machine: Machine, case: str) -> None:
    arguments, code, said = EXITS[case]
    ended = machine.run(*arguments)
    assert (ended.returncode, ended.stdout, said in ended.stderr) == (code, "", True), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["list", "watch", "approve"])
def test_endpoint_without_a_listener_is_unreachable(machine: Machine, command: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        more = ("--all",) if command == "approve" else ()
        ended = machine.run("guest", command, *more, "--endpoint", url, "--retry-for", "0s")
    assert (ended.returncode, ended.stdout) == (5, "")
    assert ended.stderr.startswith(f"forewarn: cannot reach {url}: Connection refused; check that this is a VM")
    assert ended.stderr.endswith("; for the emulator, pass a URL from `forewarn vm list` with --endpoint\n")


def test_control_characters_of_the_service_are_escaped(machine: Machine) -> None:
    strange = event(Description="\x1b[2Jgone\r\nall", EventType="Tele\nport", Resources=["a\x07b"])
    with run_faulty_server(*[responds(200, document(strange))] * 2) as running:
        ended = machine.run("guest", "list", "--endpoint", running.url, "--name", "vm")
    heading, row = ended.stdout.splitlines()
    assert all(text in row for text in (r"Tele\nport", r"a\x07b", r"\x1b[2Jgone\r\nall"))
    assert f"{heading}{row}".isprintable()


def test_endpoint_that_does_not_serve_this_machine_refuses(vm: Vm) -> None:
    ended = vm.run("guest", "list", "--endpoint", vm.service.ready["operator_url"])
    assert (ended.returncode, ended.stdout) == (3, "")
    assert " answered 401: " in ended.stderr


@pytest.mark.process
def test_plain_install_is_enough(vm: Vm) -> None:
    """No package of any extra is needed on the VM."""
    (id_,) = vm.told_of("Reboot")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))\n"
        "sys.argv = ['forewarn', 'guest', 'list', '-o', 'json']\n"
        "from forewarn.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=vm.environment, capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [event["id"] for event in json.loads(ended.stdout)] == [id_]


def test_event_ids_complete_in_the_shell(vm: Vm) -> None:
    ids = vm.told_of("Reboot", "Freeze")
    for typed, completions in (("", ids), (ids[0][:8], [ids[0]])):
        completing = {
            "_FOREWARN_COMPLETE": "bash_complete",
            "COMP_WORDS": f"forewarn guest approve {typed}",
            "COMP_CWORD": "3",
        }
        assert sorted(vm.run(**completing).stdout.split()) == sorted(f"plain,{id_}" for id_ in completions)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_except_request_options_has_a_variable(machine: Machine, command: str) -> None:
    page = machine.run(*command.split(), "--help").stdout
    options = re.split(r"\n  (?=-)", page.partition("Options:")[2])[1:]
    without = {text.split()[0] for text in options if not re.search(r"\[env\s+var:\s+FOREWARN_", text)}
    assert without - {"--mine", "--all"} == {"--help"}
    assert len(options) - len(without) == 4
