"""`forewarn host`: the hosts of the fleet's VMs."""

from tests.cli.in_process import run, run_details, run_json, run_table
from tests.cli.service_machine import ServiceMachine, schedule_event


def test_hosts_are_listed_with_vms_events_and_scopes(inventory_machine: ServiceMachine) -> None:
    event = schedule_event(inventory_machine, "Reboot", "web-0")
    assert run_table(inventory_machine, "host", "list") == [
        ["HOST", "VMS", "OPEN EVENTS", "SCOPES"],
        ["hv-0", "1", "1", "web"],
        ["hv-1", "1", "0", "web"],
    ]
    assert run_json(inventory_machine, "host", "list") == [
        {"name": "hv-0", "vms": ["web/web-0"], "scopes": ["web"], "open_events": [event]},
        {"name": "hv-1", "vms": ["web/web-1"], "scopes": ["web"], "open_events": []},
    ]


def test_host_is_shown_by_its_name(inventory_machine: ServiceMachine) -> None:
    assert run_details(inventory_machine, "host", "show", "hv-1") == {
        "host": "hv-1",
        "scopes": "web",
        "VMs": "web/web-1",
    }
    assert run_json(inventory_machine, "host", "show", "hv-1")["vms"] == ["web/web-1"]


def test_unknown_host_is_not_found(inventory_machine: ServiceMachine) -> None:
    ended = run(inventory_machine, "host", "show", "hv-9")
    assert (ended.code, ended.stdout) == (4, "")
    assert "hv-9" in ended.stderr


def test_host_that_no_process_has_served_cannot_be_given_up(inventory_machine: ServiceMachine) -> None:
    ended = run(inventory_machine, "host", "gone", "hv-0", "--reason", "fire")
    assert (ended.code, ended.stdout) == (4, "")
    assert "hv-0" in ended.stderr
    assert run(inventory_machine, "host", "gone", "hv-0").code == 2
