"""The whole life of every type of event, as somebody at a terminal sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.inside import details, run, told
from tests.cli.shop import open_shop
from tests.cli.stage import Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 4, priority = "low", terminate_notice = "5m" }]
"""

LIFE = ["scheduled", "started", "impact-begun", "impact-done", "completed"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Machine]:
    with open_shop(tmp_path, FLEET) as machine:
        yield machine


def _story(shop: Machine, id_: str) -> list[str]:
    return [line["did"] for line in told(shop, "event", "show", id_)["timeline"] if line["did"] in {*LIFE, "approved"}]


@pytest.mark.parametrize("type_", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_event_is_scheduled_started_when_it_is_due_and_completed(shop: Machine, type_: str) -> None:
    (event,) = told(shop, "event", "schedule", type_, "web-0", "--in", "20m")["events"]
    id_ = event["id"]
    assert details(shop, "event", "show", id_)["status"] == "Scheduled"
    told(shop, "clock", "advance", "19m59s")
    assert details(shop, "event", "show", id_)["status"] == "Scheduled"
    told(shop, "clock", "advance", "1s")
    started = details(shop, "event", "show", id_)
    assert (started["status"], started["work on web-0"]) == ("Started", "begun")
    told(shop, "clock", "advance", "10m")
    assert details(shop, "event", "show", id_)["status"].startswith("completed at ")
    assert _story(shop, id_) == LIFE
    vms = {vm["name"]: vm["host"] for vm in told(shop, "vm", "list")}
    assert ("web-0" in vms) is (type_ in {"Freeze", "Reboot", "Redeploy"})
    if "web-0" in vms:
        assert (vms["web-0"] == "hv-0") is (type_ != "Redeploy")


@pytest.mark.parametrize("type_", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_event_is_approved_and_starts_before_its_time(shop: Machine, type_: str) -> None:
    (event,) = told(shop, "event", "schedule", type_, "web-1", "--in", "20m")["events"]
    assert told(shop, "event", "approve", event["id"])["event"]["status"] == "Started"
    told(shop, "clock", "advance", "10m")
    assert _story(shop, event["id"]) == ["scheduled", "approved", *LIFE[1:]]


def test_held_event_waits_past_its_time_and_starts_when_it_is_released(shop: Machine) -> None:
    (event,) = told(shop, "event", "schedule", "Reboot", "web-0", "--in", "20m")["events"]
    run(shop, "hold", "rack 4 burns")
    told(shop, "clock", "advance", "1h")
    assert details(shop, "event", "show", event["id"])["waits for"] == "all maintenance is held by admin: rack 4 burns"
    run(shop, "release", "--why", "the fire is out")
    assert details(shop, "event", "show", event["id"])["status"] == "Started"
    lines = told(shop, "history", "--since", "2h")
    assert [(line["did"], line["why"]) for line in lines if line["did"] in {"held", "released"}] == [
        ("held", "rack 4 burns"),
        ("released", "the fire is out"),
    ]


def test_failure_of_a_host_starts_at_once_whatever_is_held(shop: Machine) -> None:
    run(shop, "hold", "rack 4 burns")
    events = told(shop, "vm", "fail", "--host", "hv-0")["events"]
    assert {event["status"] for event in events} == {"Started"}
    told(shop, "clock", "advance", "10m")
    assert "hv-0" not in {vm["host"] for vm in told(shop, "vm", "list")}


def test_eleventh_operation_of_an_owner_is_refused(shop: Machine) -> None:
    codes = [run(shop, "vm", "restart", "web-0").code for _ in range(11)]
    assert codes == [0] * 10 + [3]
