"""The whole life of every event type, as commands show it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import run, run_details, run_json
from tests.cli.service_machine import run_service_machine
from tests.support.program import Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 4, priority = "low", terminate_notice = "5m" }]
"""

EXPECTED_TIMELINE = ["scheduled", "started", "impact-begun", "impact-done", "completed"]


@pytest.fixture
def service_machine(tmp_path: Path) -> Iterator[Machine]:
    with run_service_machine(tmp_path, FLEET) as machine:
        yield machine


def _event_detail(service_machine: Machine, id_: str) -> list[str]:
    return [
        line["action"]
        for line in run_json(service_machine, "event", "show", id_)["journal"]
        if line["action"] in {*EXPECTED_TIMELINE, "approved"}
    ]


@pytest.mark.parametrize("type_", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_event_starts_when_due_and_completes(service_machine: Machine, type_: str) -> None:
    (event,) = run_json(service_machine, "event", "schedule", type_, "web-0", "--in", "20m")["events"]
    id_ = event["id"]
    assert run_details(service_machine, "event", "show", id_)["status"] == "Scheduled"
    run_json(service_machine, "clock", "advance", "19m59s")
    assert run_details(service_machine, "event", "show", id_)["status"] == "Scheduled"
    run_json(service_machine, "clock", "advance", "1s")
    started = run_details(service_machine, "event", "show", id_)
    assert (started["status"], started["work on web-0"]) == ("Started", "begun")
    run_json(service_machine, "clock", "advance", "10m")
    assert run_details(service_machine, "event", "show", id_)["status"].startswith("completed at ")
    assert _event_detail(service_machine, id_) == EXPECTED_TIMELINE
    vms = {vm["name"]: vm["host"] for vm in run_json(service_machine, "vm", "list")}
    assert ("web-0" in vms) is (type_ in {"Freeze", "Reboot", "Redeploy"})
    if "web-0" in vms:
        assert (vms["web-0"] == "hv-0") is (type_ != "Redeploy")


@pytest.mark.parametrize("type_", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_approved_event_starts_early(service_machine: Machine, type_: str) -> None:
    (event,) = run_json(service_machine, "event", "schedule", type_, "web-1", "--in", "20m")["events"]
    assert run_json(service_machine, "event", "approve", event["id"])["event"]["status"] == "Started"
    run_json(service_machine, "clock", "advance", "10m")
    assert _event_detail(service_machine, event["id"]) == ["scheduled", "approved", *EXPECTED_TIMELINE[1:]]


def test_held_event_waits_and_starts_after_release(service_machine: Machine) -> None:
    (event,) = run_json(service_machine, "event", "schedule", "Reboot", "web-0", "--in", "20m")["events"]
    run(service_machine, "hold", "rack 4 burns")
    run_json(service_machine, "clock", "advance", "1h")
    assert (
        run_details(service_machine, "event", "show", event["id"])["waits for"]
        == "all maintenance is held by admin: rack 4 burns"
    )
    run(service_machine, "release", "--reason", "the fire is out")
    run_json(service_machine, "clock", "advance", "0s")  # returns when everything due has happened
    assert run_details(service_machine, "event", "show", event["id"])["status"] == "Started"
    lines = run_json(service_machine, "journal", "--since", "2h")
    assert [(line["action"], line["reason"]) for line in lines if line["action"] in {"held", "released"}] == [
        ("held", "rack 4 burns"),
        ("released", "the fire is out"),
    ]


def test_host_failure_starts_at_once_despite_a_hold(service_machine: Machine) -> None:
    run(service_machine, "hold", "rack 4 burns")
    events = run_json(service_machine, "vm", "fail", "--host", "hv-0")["events"]
    assert {event["status"] for event in events} == {"Started"}
    run_json(service_machine, "clock", "advance", "10m")
    assert "hv-0" not in {vm["host"] for vm in run_json(service_machine, "vm", "list")}


def test_eleventh_operation_of_an_owner_is_refused(service_machine: Machine) -> None:
    codes = [run(service_machine, "vm", "restart", "web-0").code for _ in range(11)]
    assert codes == [0] * 10 + [3]
