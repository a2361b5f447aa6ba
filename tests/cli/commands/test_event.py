"""Events, operations, holds and the journal from the command line."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cli.in_process import CommandResult, run, run_details, run_json, run_table, run_up
from tests.cli.service_machine import FLEET, ServiceMachine, run_service_machine
from tests.support.program import Machine


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path_factory.mktemp("events")) as machine:
        yield machine


def _scheduled(service_machine: ServiceMachine, *arguments: str) -> str:
    """Make one event, and return its id."""
    (made,) = run_json(service_machine, "event", "schedule", *arguments)["created"]
    id_: str = made["id"]
    return id_


@pytest.mark.parametrize(
    ("selection", "vms"),
    [
        (("--host", "hv-0"), {"web-0", "web-2"}),
        (("--scope", "web"), {"web-0", "web-1", "web-2", "web-3"}),
        (("--scope", "web", "--update-domain", "1"), {"web-1", "web-3"}),
    ],
    ids=["host", "scope", "update domain"],
)
def test_maintenance_is_announced_for_what_is_selected(
    service_machine: ServiceMachine, selection: tuple[str, ...], vms: set[str]
) -> None:
    events = run_json(service_machine, "event", "schedule", "Freeze", *selection, "--in", "20m")["events"]
    assert {vm for event in events for vm in event["vms"]} == vms
    for event in events:
        assert run(service_machine, "event", "cancel", event["id"][:12]).code == 0


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (("restart",), ("Reboot", "User", "user")),
        (("redeploy",), ("Redeploy", "User", "user")),
        (("evict", "--in", "1m"), ("Preempt", "Platform", "eviction")),
        (("fail",), ("Redeploy", "Platform", "failure")),
        (("fail", "--type", "reboot"), ("Reboot", "Platform", "failure")),
    ],
    ids=["restart", "redeploy", "evict", "fail", "fail with reboot"],
)
def test_operation_makes_its_event(
    service_machine: ServiceMachine, command: tuple[str, ...], made: tuple[str, ...]
) -> None:
    (event,) = run_json(
        service_machine, "vm", command[0], service_machine.take_vm(), *command[1:], "--reason", "because"
    )["events"]
    assert (event["type"], event["source"], event["cause"]) == made
    assert (event["reason"], event["status"]) == ("because", "Started" if command[0] == "fail" else "Scheduled")


def test_operation_is_shown_as_a_table(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    (header, row) = run_table(service_machine, "vm", "restart", vm)
    assert (header[:3], row[1:5]) == (["EVENT", "STATUS", "TYPE"], ["Scheduled", "Reboot", "batch", vm])


def test_failure_can_be_predicted_for_a_host(service_machine: ServiceMachine) -> None:
    now = run_json(service_machine, "clock", "show")["now"]
    events = run_json(service_machine, "vm", "fail", "--host", "hv-1", "--predicted", "3d")["events"]
    assert {(event["type"], event["status"], event["host"]) for event in events} == {("Redeploy", "Scheduled", "hv-1")}
    assert all(event["not_before"] > now for event in events)
    for event in events:
        run(service_machine, "event", "cancel", event["id"])


def test_vm_without_terminate_notice_is_deleted_at_once_and_others_with_an_event(
    service_machine: ServiceMachine,
) -> None:
    first, second = service_machine.take_vm(), service_machine.take_vm()
    at_once = run(service_machine, "vm", "delete", first)
    assert (at_once.code, at_once.stdout) == (0, "")
    assert at_once.stderr == f"VM {first} is deleted at once: it has no terminate notice.\n"
    assert run(service_machine, "vm", "show", first).code == 4
    run(service_machine, "vm", "change", second, "--terminate-notice", "10m")
    (event,) = run_json(service_machine, "vm", "delete", second)["events"]
    assert (event["type"], event["source"]) == ("Terminate", "User")


def test_event_is_shown_with_its_timeline(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    id_ = _scheduled(service_machine, "Reboot", vm, "--in", "20m", "--reason", "new kernel", "--description", "restart")
    shown = run_details(service_machine, "event", "show", id_[:8].lower())
    assert (shown["event"], shown["type"], shown["VMs"], shown["status"]) == (id_, "Reboot", vm, "Scheduled")
    assert (shown["reason"], shown["description"]) == ("new kernel", "restart")
    assert shown["waits for"].startswith("not before ")
    timeline = run(service_machine, "event", "show", id_).stdout.partition("\n\n")[2].splitlines()
    assert timeline[0].split() == ["AT", "ACTION", "VMS", "ACTOR", "REASON"]
    assert "new kernel" in timeline[1]
    run(service_machine, "event", "cancel", id_, "--reason", "not today")
    ended = run_details(service_machine, "event", "show", id_[:8])
    assert ended["status"].startswith("canceled at ")
    assert (ended["source"], ended["reason"], ended["created"].partition(" by ")[2]) == (
        "Platform",
        "new kernel",
        "admin",
    )
    assert run_json(service_machine, "event", "show", id_)["outcome"] == "canceled"


def test_cancelled_event_is_gone_and_says_so(service_machine: ServiceMachine) -> None:
    id_ = _scheduled(service_machine, "Freeze", service_machine.take_vm())
    canceled = run(service_machine, "event", "cancel", id_)
    assert re.fullmatch(rf"Event {id_} in scope batch is canceled at [-0-9: ]+Z\.\n", canceled.stdout)


def test_started_event_cannot_be_cancelled(service_machine: ServiceMachine) -> None:
    (event,) = run_json(service_machine, "vm", "fail", service_machine.take_vm())["events"]
    ended = run(service_machine, "event", "cancel", event["id"])
    assert (ended.code, ended.stdout) == (3, "")


def test_event_is_approved_on_behalf_of_its_vm(service_machine: ServiceMachine) -> None:
    (header, row) = run_table(
        service_machine, "event", "approve", _scheduled(service_machine, "Freeze", service_machine.take_vm())
    )
    assert (header[1], row[1]) == ("STATUS", "Started")
    run(service_machine, "clock", "advance", "1m")
    ended = run_details(service_machine, "event", "show", row[0])
    assert (ended["status"][:9], ended["approved by"][:9]) == ("completed", "admin at ")
    assert ended["started at"] == ended["created"].partition(" by ")[0]


def test_event_of_several_vms_is_approved_for_the_one_that_is_named(service_machine: ServiceMachine) -> None:
    id_ = _scheduled(service_machine, "Freeze", "pair-0", "pair-1")
    asked = run(service_machine, "event", "approve", id_)
    assert (asked.code, asked.stderr) == (2, "forewarn: say on behalf of which VM: --vm pair-0 or pair-1\n")
    event = run_json(service_machine, "event", "approve", id_, "--vm", "pair-0")["event"]
    assert [approval["vm"] for approval in event["approvals"]] == ["pair-0"]
    assert run_details(service_machine, "event", "show", id_)["approved by"].startswith("pair-0 at ")


def test_beginning_of_several_ids_is_no_event(service_machine: ServiceMachine) -> None:
    ids = [_scheduled(service_machine, "Freeze", service_machine.take_vm()) for _ in range(2)]
    beginning = ids[0][:4]
    meant = run(service_machine, "event", "show", beginning)
    assert meant.code == (0 if not ids[1].startswith(beginning) else 2)


def test_hold_and_release_say_what_is_held(service_machine: ServiceMachine) -> None:
    assert run(service_machine, "hold").stderr == "Nothing is held.\n"
    held = run(service_machine, "hold", "the switch is replaced", "--scope", "web")
    assert re.fullmatch(r"Scope web is held by admin since [-0-9: ]+Z: the switch is replaced\n", held.stdout)
    holds = run_json(service_machine, "hold", "all hands off")
    assert (holds[0]["reason"], holds[1]["scope"]) == ("all hands off", "web")
    assert run(service_machine, "hold").stdout.count("\n") == 2
    again = run(service_machine, "hold", "hands off again")
    assert re.fullmatch(r"This replaces the hold of admin since [-0-9: ]+Z: all hands off\n", again.stderr)
    released = run(service_machine, "release", "--reason", "done")
    assert (released.code, released.stdout.startswith("Scope web is held")) == (0, True)
    assert re.fullmatch(
        r"Released: the whole fleet, held by admin since [-0-9: ]+Z: hands off again\n", released.stderr
    )
    assert run(service_machine, "release").stderr == "Nothing to release: the whole fleet was not held.\n"
    assert run_json(service_machine, "release", "--scope", "web") == []


def test_history_tells_why_a_vm_paused(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    run_json(service_machine, "clock", "advance", "1h")
    id_ = _scheduled(service_machine, "Freeze", vm, "--in", "20m", "--reason", "new switch")
    run(service_machine, "event", "approve", id_)
    now = run_json(service_machine, "clock", "show")["now"]
    run_json(service_machine, "clock", "advance", "2h")
    ended = run(service_machine, "journal", "--vm", vm, "--at", now[11:16])
    assert ended.code == 0
    assert [row[1] for row in _table(ended)[1:]][:3] == ["scheduled", "approved", "started"]
    assert "new switch" in ended.stdout
    assert f"`forewarn event show {id_[:8]}` tells everything about that event." in ended.stderr
    assert [line["action"] for line in run_json(service_machine, "journal", "--vm", vm, "--since", "1h")] == []
    assert {line["action"] for line in run_json(service_machine, "journal", "--event", id_[:8], "--since", "3h")} >= {
        "started",
        "completed",
    }


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (("--action", "approved", "--all"), lambda line: line["action"] == "approved"),
        (("--scope", "batch", "--all"), lambda line: line["record_id"] == "batch"),
        (("--actor", "admin", "--all"), lambda line: line["actor"] == "admin"),
    ],
    ids=["did", "scope", "by"],
)
def test_history_is_filtered(service_machine: ServiceMachine, options: tuple[str, ...], fits: Any) -> None:
    run(service_machine, "event", "approve", _scheduled(service_machine, "Freeze", service_machine.take_vm()))
    everything = run_json(service_machine, "journal", "--all")
    assert run_json(service_machine, "journal", *options) == [line for line in everything if fits(line)] != []


def test_history_is_the_newest_lines_in_order(service_machine: ServiceMachine) -> None:
    everything = run_json(service_machine, "journal", "--all")
    assert [line["position"] for line in everything] == sorted(line["position"] for line in everything)
    assert run_json(service_machine, "journal", "--newest", "3") == everything[-3:]
    for _ in range(60 - min(len(everything), 60)):
        run_json(service_machine, "clock", "advance", "1s")
    short = run(service_machine, "journal")
    assert len(short.stdout.splitlines()) == 51
    assert short.stderr.endswith("These are the newest 50 lines: --since, --newest or --all shows more.\n")


def test_history_without_such_lines_says_so(service_machine: ServiceMachine) -> None:
    ended = run(service_machine, "journal", "--actor", "nobody")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "The journal has no such lines.\n")


def _table(ended: CommandResult) -> list[list[str]]:
    return [re.split(r"  +", line) for line in ended.stdout.splitlines()]


def test_history_says_where_it_found_nothing(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "clock", "advance", "1h")
    ended = run(service_machine, "journal", "--since", "30m", "--until", "20m")
    assert ended.code == 0
    assert re.fullmatch(
        r"The journal has no such lines\.\nLooked from [-0-9: ]+Z until [-0-9: ]+Z; the service has [-0-9: ]+Z\.\n",
        ended.stderr,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("journal", "--since", "1h", "--until", "2h"), "comes after --until"),
        (("event", "schedule", "Freeze", "web-0", "--host", "hv-0"), "VM… and --host: say one of them"),
        (("event", "schedule", "Freeze", "web-0", "--update-domain", "1"), "--update-domain says which VMs of a scope"),
        (("event", "schedule", "Freeze", "web-0", "--at", "2001-01-01T00:00Z"), "to start at once say --in 0s"),
        (("event", "schedule", "Freeze", "web-0", "--at", "2101-01-01T00:00"), "has no zone"),
        (("event", "resolve", "ABCD1234", "--done", "--give-up"), "--done and --give-up: say one of them"),
        (("event", "resolve", "ABCD1234"), "say how it ends: --done if it was done after all, --give-up if not; and"),
        (("event", "resolve", "ABCD1234"), "what you found out: --reason TEXT"),
        (("event", "show", "zzzz"), "digits and A to F"),
        (("event", "schedule", "Freeze", ""), "vms[0] is empty"),
        (("hold", "rack 4 burns", "--scope", ""), "scope is empty"),
        (("hold", "rack 4 burns", "--key", "a b"), "a request key is 1 to 64 printable ASCII characters"),
        (("release", "--reason", "a" * 600), "reason is longer than 512 characters"),
        (("token", "create", "grafana", "--expires", "5"), "90d (from now)"),
    ],
)
def test_wrong_usage_is_answered_with_what_is_right(
    service_machine: ServiceMachine, arguments: tuple[str, ...], said: str
) -> None:
    ended = run(service_machine, *arguments)
    assert (ended.code, ended.stdout, said in ended.stderr) == (2, "", True), ended.stderr


def test_maintenance_can_be_announced_for_a_time_of_day(service_machine: ServiceMachine) -> None:
    now = datetime.fromisoformat(run_json(service_machine, "clock", "show")["now"])
    wanted = (now + timedelta(hours=2)).replace(second=0, microsecond=0)
    (event,) = run_json(
        service_machine, "event", "schedule", "Freeze", service_machine.take_vm(), "--at", f"{wanted:%H:%M}"
    )["events"]
    assert datetime.fromisoformat(event["not_before"]) == wanted


@pytest.fixture
def failing(machine: Machine) -> Iterator[Machine]:
    """A service whose own program fails for every impact."""
    (machine.home / "fleet.toml").write_text(FLEET)
    program = json.dumps([sys.executable, "-c", "import sys; print('looking'); print('no such domain'); sys.exit(1)"])
    settings = machine.home / "forewarn.toml"
    settings.write_text(f'platform = "command"\n[command]\nprogram = {program}\nattempts = 1\n')
    with machine.up("--ephemeral", "--fleet", "fleet.toml"):
        yield machine


@pytest.mark.process
@pytest.mark.parametrize(("how", "outcome"), [("--done", "completed"), ("--give-up", "failed")])
def test_failed_work_is_retried_and_resolved_by_a_person(failing: Machine, how: str, outcome: str) -> None:
    (made,) = run_json(failing, "vm", "fail", "web-0")["created"]
    id_ = made["id"]
    _wait_for(failing, id_, "impact-failed", 1)
    assert "the work on web-0 has failed" in run_details(failing, "event", "show", id_)["waits for"]
    assert run_details(failing, "event", "show", id_)["work on web-0"].startswith("failed")
    assert run(failing, "event", "retry", id_, "--vm", "web-0", "--reason", "domain is back").code == 0
    _wait_for(failing, id_, "impact-failed", 2)
    (first, *_) = [line for line in run(failing, "journal", "--event", id_).stdout.splitlines() if "failed" in line]
    assert first.endswith(": no such domain; attempt: 1; output: looking / no such domain"), first
    resolved = run_json(failing, "event", "resolve", id_, how, "--reason", "looked at it")
    assert (resolved["outcome"], resolved["event"]) == (outcome, None)


def _wait_for(machine: Machine, id_: str, did: str, times: int) -> None:
    """Wait until the journal says it; the test's own time limit ends what would not."""
    while sum(line["action"] == did for line in run_json(machine, "event", "show", id_)["journal"]) < times:
        pass


def test_whoever_schedules_what_no_vm_is_told_of_hears_it_at_once(machine: Machine) -> None:
    with run_up(machine, FOREWARN_POLICY_ANNOUNCE="when-enabled"):
        begun = run(machine, "event", "schedule", "Reboot", "web-0")
        (id_, *_, waits_for) = _only_row(begun)
        assert begun.stderr == (
            f"Nobody in scope web is told of event {id_}, which has started: none of its VMs asks for events. "
            "`forewarn doctor web/web-0` says more.\n"
        )
        assert waits_for == "the work on web-0, begun; unannounced"
        later = run(machine, "event", "schedule", "Reboot", "web-3", "--in", "1h")
        (id_, *_, when, waits_for) = _only_row(later)
        assert f"of event {id_}, which starts at {when}: none" in later.stderr
        assert waits_for == f"not before {when}; unannounced"


def _only_row(ended: CommandResult) -> list[str]:
    _, row = ended.stdout.splitlines()
    return re.split(r" {2,}", row)
