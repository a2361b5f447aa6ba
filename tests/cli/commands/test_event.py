"""Events from the command line.

Processes: for a service whose platform is a program.
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.cli.in_process import CommandResult, run, run_details, run_json, run_table, run_up
from tests.cli.service_machine import FLEET, ServiceMachine, schedule_event
from tests.support.program import Machine


@pytest.mark.parametrize(
    ("selection", "vms"),
    [
        (("--host", "hv-0"), {"web-0", "web-2"}),
        (("--scope", "web"), {"web-0", "web-1", "web-2", "web-3"}),
        (("--scope", "web", "--update-domain", "1"), {"web-1", "web-3"}),
    ],
    ids=["host", "scope", "update domain"],
)
def test_schedule_announces_events_for_the_selected_vms(
    service_machine: ServiceMachine, selection: tuple[str, ...], vms: set[str]
) -> None:
    events = run_json(service_machine, "event", "schedule", "Freeze", *selection, "--in", "20m")["events"]
    assert {vm for event in events for vm in event["vms"]} == vms
    for event in events:
        assert run(service_machine, "event", "cancel", event["id"][:12]).code == 0


def test_event_is_shown_with_its_timeline(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    id_ = schedule_event(
        service_machine, "Reboot", vm, "--in", "20m", "--reason", "new kernel", "--description", "restart"
    )
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


def test_cancel_shows_the_ended_event(service_machine: ServiceMachine) -> None:
    id_ = schedule_event(service_machine, "Freeze", service_machine.take_vm())
    canceled = run(service_machine, "event", "cancel", id_)
    assert re.fullmatch(rf"Event {id_} in scope batch is canceled at [-0-9: ]+Z\.\n", canceled.stdout)


def test_started_event_cannot_be_cancelled(service_machine: ServiceMachine) -> None:
    (event,) = run_json(service_machine, "vm", "fail", service_machine.take_vm())["events"]
    ended = run(service_machine, "event", "cancel", event["id"])
    assert (ended.code, ended.stdout) == (3, "")


def test_event_is_approved_on_behalf_of_its_vm(service_machine: ServiceMachine) -> None:
    (header, row) = run_table(
        service_machine, "event", "approve", schedule_event(service_machine, "Freeze", service_machine.take_vm())
    )
    assert (header[1], row[1]) == ("STATUS", "Started")
    run(service_machine, "clock", "advance", "1m")
    ended = run_details(service_machine, "event", "show", row[0])
    assert (ended["status"][:9], ended["approved by"][:9]) == ("completed", "admin at ")
    assert ended["started at"] == ended["created"].partition(" by ")[0]


def test_event_of_several_vms_is_approved_for_the_given_vm(service_machine: ServiceMachine) -> None:
    id_ = schedule_event(service_machine, "Freeze", "pair-0", "pair-1")
    asked = run(service_machine, "event", "approve", id_)
    assert (asked.code, asked.stderr) == (2, "forewarn: specify the VM that approves: --vm pair-0 or pair-1\n")
    event = run_json(service_machine, "event", "approve", id_, "--vm", "pair-0")["event"]
    assert [approval["vm"] for approval in event["approvals"]] == ["pair-0"]
    assert run_details(service_machine, "event", "show", id_)["approved by"].startswith("pair-0 at ")


def test_ambiguous_id_prefix_is_refused(service_machine: ServiceMachine) -> None:
    ids = [schedule_event(service_machine, "Freeze", service_machine.take_vm()) for _ in range(2)]
    beginning = ids[0][:4]
    meant = run(service_machine, "event", "show", beginning)
    assert meant.code == (0 if not ids[1].startswith(beginning) else 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("journal", "--since", "1h", "--until", "2h"), "is later than --until"),
        (("event", "schedule", "Freeze", "web-0", "--host", "hv-0"), "VM and --host are mutually exclusive"),
        (("event", "schedule", "Freeze", "web-0", "--update-domain", "1"), "--update-domain requires --scope"),
        (("event", "schedule", "Freeze", "web-0", "--at", "2001-01-01T00:00Z"), "to start at once, use --now"),
        (("event", "schedule", "Freeze", "web-0", "--at", "2101-01-01T00:00"), "has no time zone"),
        (("event", "resolve", "ABCD1234", "--done", "--give-up"), "--done and --give-up are mutually exclusive"),
        (
            ("event", "resolve", "ABCD1234"),
            "specify the outcome: --done if the work was done after all, --give-up if not; and",
        ),
        (("event", "resolve", "ABCD1234"), "what you found out: --reason TEXT"),
        (("event", "show", "zzzz"), "digits and A to F"),
        (("event", "schedule", "Freeze", ""), "vms[0] is empty"),
        (("hold", "rack 4 burns", "--scope", ""), "scope is empty"),
        (("hold", "rack 4 burns", "--key", "a b"), "a request key must be 1 to 64 printable ASCII characters"),
        (("release", "--reason", "a" * 600), "reason is longer than 512 characters"),
        (("token", "create", "grafana", "--expires", "5"), "90d (from now)"),
    ],
)
def test_wrong_usage_error_shows_what_is_allowed(
    service_machine: ServiceMachine, arguments: tuple[str, ...], said: str
) -> None:
    ended = run(service_machine, *arguments)
    assert (ended.code, ended.stdout, said in ended.stderr) == (2, "", True), ended.stderr


def test_wrong_usage_is_reported_without_a_service(machine: Machine) -> None:
    """Exit code 2 and not 5: a mistyped option is reported even if no service runs."""
    ended = run(machine, "event", "schedule", "Freeze", "web-0", "--in", "5m", "--at", "03:12")
    assert (ended.code, ended.stdout) == (2, ""), ended.stderr
    assert "--in and --at are mutually exclusive" in ended.stderr
    assert run(machine, "event", "schedule", "Freeze", "web-0", "--in", "5m").code == 5


def test_maintenance_can_be_announced_for_a_time_of_day(service_machine: ServiceMachine) -> None:
    now = datetime.fromisoformat(run_json(service_machine, "clock", "show")["now"])
    wanted = (now + timedelta(hours=2)).replace(second=0, microsecond=0)
    (event,) = run_json(
        service_machine, "event", "schedule", "Freeze", service_machine.take_vm(), "--at", f"{wanted:%H:%M}"
    )["events"]
    assert datetime.fromisoformat(event["not_before"]) == wanted


@pytest.fixture
def failing(machine: Machine) -> Iterator[Machine]:
    """Run a service whose platform program always fails."""
    (machine.home / "fleet.toml").write_text(FLEET)
    program = json.dumps([sys.executable, "-c", "import sys; print('looking'); print('no such domain'); sys.exit(1)"])
    settings = machine.home / "forewarn.toml"
    settings.write_text(f'platform = "command"\n[command]\nprogram = {program}\nattempts = 1\n')
    with machine.up("--ephemeral", "--fleet", "fleet.toml"):
        yield machine


@pytest.mark.process
@pytest.mark.parametrize(("how", "outcome"), [("--done", "completed"), ("--give-up", "failed")])
def test_failed_work_is_retried_and_resolved(failing: Machine, how: str, outcome: str) -> None:
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
    """Wait until the journal has these entries, within the time limit of the test."""
    while sum(line["action"] == did for line in run_json(machine, "event", "show", id_)["journal"]) < times:
        pass


def test_schedule_warns_about_unannounced_events(machine: Machine) -> None:
    with run_up(machine, FOREWARN_POLICY_ANNOUNCE="when-enabled"):
        begun = run(machine, "event", "schedule", "Reboot", "web-0")
        (id_, *_, waits_for) = _only_row(begun)
        assert begun.stderr == (
            f"Event {id_}, which has started, is not announced: no VM of scope web polls for events. "
            "To find out why: forewarn doctor web/web-0\n"
        )
        assert waits_for == "the work on web-0, begun; unannounced"
        later = run(machine, "event", "schedule", "Reboot", "web-3", "--in", "1h")
        (id_, *_, when, waits_for) = _only_row(later)
        assert f"Event {id_}, which starts at {when}, is not announced" in later.stderr
        assert waits_for == f"not before {when}; unannounced"


def _only_row(ended: CommandResult) -> list[str]:
    _, row = ended.stdout.splitlines()
    return re.split(r" {2,}", row)
