"""VMs from the command line: add, change, delete, restart, redeploy, evict and fail."""

from datetime import datetime, timedelta

import pytest

from tests.cli.in_process import run, run_details, run_json, run_table
from tests.cli.service_machine import ServiceMachine


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
def test_operation_creates_its_event(
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


def test_vm_is_added_changed_and_removed(inventory_machine: ServiceMachine) -> None:
    place = ("--scope", "web", "--host", "hv-1", "--update-domain", "1")
    traits = ("--tag", "a=b", "--terminate-notice", "5m", "--os", "linux")
    addresses = ("--address", "10.0.0.9", "--address", "fd00::9@blue")
    added = run_json(inventory_machine, "vm", "add", "web-2", *place, *traits, *addresses)
    assert (added["scope"], added["host"], added["update_domain"], added["tags"]) == ("web", "hv-1", 1, {"a": "b"})
    assert [(each["ip"], each["network"]) for each in added["addresses"]] == [
        ("10.0.0.9", "default"),
        ("fd00::9", "blue"),
    ]
    changed = run_details(
        inventory_machine, "vm", "change", "web-2", "--host", "hv-0", "--zone", "2", "--clear", "tags"
    )
    assert (changed["host"], changed["zone"], "tags" in changed) == ("hv-0", "2", False)
    assert changed["addresses"] == "10.0.0.9, fd00::9@blue"
    assert (
        run_json(inventory_machine, "vm", "change", "web-2", "--clear", "addresses", "--clear", "host")["addresses"]
        == []
    )
    removed = run(inventory_machine, "vm", "remove", "web-2")
    assert (removed.code, removed.stdout, removed.stderr) == (0, "", "VM web-2 is removed.\n")
    assert run(inventory_machine, "vm", "show", "web-2").code == 4


def test_vms_are_filtered(inventory_machine: ServiceMachine) -> None:
    assert [vm["name"] for vm in run_json(inventory_machine, "vm", "list", "--name", "*-1")] == ["web-1"]
    assert [vm["name"] for vm in run_json(inventory_machine, "vm", "list", "--host", "hv-0")] == ["web-0"]
    nothing = run(inventory_machine, "vm", "list", "--name", "x*")
    assert (nothing.code, nothing.stdout, nothing.stderr) == (0, "", "No such VMs.\n")


def test_vm_is_added_with_the_name_of_its_scope(inventory_machine: ServiceMachine) -> None:
    added = run_json(inventory_machine, "vm", "add", "web/web-7")
    assert (added["scope"], added["name"]) == ("web", "web-7")
    assert run_json(inventory_machine, "vm", "add", "web/web-8", "--scope", "web")["name"] == "web-8"
    ended = run(inventory_machine, "vm", "add", "web/web-9", "--scope", "db")
    assert (ended.code, ended.stderr) == (
        2,
        "forewarn: VM web/web-9 and --scope db name different scopes; use one of them\n",
    )


@pytest.mark.parametrize(("command", "type_"), [("restart", "Reboot"), ("redeploy", "Redeploy")])
def test_owner_can_choose_the_notice(service_machine: ServiceMachine, command: str, type_: str) -> None:
    now = datetime.fromisoformat(run_json(service_machine, "clock", "show")["now"])
    (event,) = run_json(service_machine, "vm", command, service_machine.take_vm(), "--in", "3h")["events"]
    assert (event["type"], event["source"]) == (type_, "User")
    assert datetime.fromisoformat(event["not_before"]) - now >= timedelta(hours=3)


def test_wrong_address_is_refused_by_its_option(service_machine: ServiceMachine) -> None:
    refused = run(service_machine, "vm", "add", "web/x", "--address", "10.0.0.300")
    assert (refused.code, refused.stderr) == (3, "forewarn: --address: address '10.0.0.300' is neither IPv4 nor IPv6\n")
