"""`forewarn doctor`: its checks and hints."""

import socket
from urllib.request import Request, urlopen

import pytest

from forewarn.api import v1
from forewarn.cli.commands.doctor import endpoint_checks
from tests.cli.in_process import run, run_json
from tests.cli.service_machine import ServiceMachine, schedule_event


def test_doctor_passes_for_a_vm_that_polls(inventory_machine: ServiceMachine) -> None:
    url = run_json(inventory_machine, "vm", "show", "web-0")["guest_url"]
    poll(url)
    well = run(inventory_machine, "doctor", "web-0")
    assert (well.code, well.stderr) == (0, "web/web-0: all 9 checks passed.\n"), well
    assert all(line.startswith("✓ ") for line in well.stdout.splitlines())
    assert f"✓ Does its endpoint answer? Yes, at {url}." in well.stdout
    assert all(check["passed"] for check in run_json(inventory_machine, "doctor", "web-0")["checks"])


def test_doctor_shows_failed_checks_with_hints(inventory_machine: ServiceMachine) -> None:
    ill = run(inventory_machine, "doctor", "nothing")
    assert (ill.code, ill.stderr) == (1, "nothing: 1 of 1 checks failed.\n")
    assert ill.stdout == "✗ Is it known? No: there is no VM nothing.\n    Add it with `forewarn vm add`.\n"


@pytest.mark.parametrize("port", ["closed", "another VM's"])
def test_doctor_sends_a_request_to_the_endpoint(inventory_machine: ServiceMachine, port: str) -> None:
    url = run_json(inventory_machine, "vm", "show", "web-1")["guest_url"]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        if port == "closed":
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (check,) = endpoint_checks(v1.Diagnosis(vm="web/web-0", guest_url=url, checks=()), "http://127.0.0.1:1")
    found = (
        f"No, not from this machine: {url}: Connection refused."
        if port == "closed"
        else "answers with status 200: web-1"
    )
    assert (check.passed, found in check.message, bool(check.hint)) == (False, True, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://169.254.169.254"])
def test_doctor_skips_endpoints_that_only_the_services_machine_can_reach(url: str) -> None:
    diagnosis = v1.Diagnosis(vm="web/web-0", guest_url=url, checks=())
    assert list(endpoint_checks(diagnosis, "https://forewarn.example:8170")) == []


def test_doctor_does_not_enable_the_scope(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "doctor", "web-0")
    assert run_json(inventory_machine, "vm", "show", "web-0")["enabled"] is False


def poll(url: str) -> bytes:
    request = Request(f"{url}/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"})
    with urlopen(request, timeout=30) as response:
        body: bytes = response.read()
        return body


def test_doctor_shows_what_the_vm_really_gets(inventory_machine: ServiceMachine) -> None:
    """It is neither a poll nor a hit of a fault, and the VM then gets the same bytes."""
    schedule_event(inventory_machine, "Reboot", "web-0")
    run(inventory_machine, "fault", "set", "extra-field", "--vm", "web-0", "--times", "1")
    before = run_json(inventory_machine, "scope", "show", "web")
    response = run_json(inventory_machine, "doctor", "web-0")["response"]
    assert run_json(inventory_machine, "scope", "show", "web") == before
    assert [fault["hits"] for fault in run_json(inventory_machine, "fault", "list")] == [0]
    assert (response["status"], response["delay"], response["faults"]) == (200, "0s", ["F1"])
    assert response["body"].encode() == poll(run_json(inventory_machine, "vm", "show", "web-0")["guest_url"])


def test_doctor_warns_about_faults_holds_and_a_scope_that_is_not_enabled(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "fault", "set", "slow")
    run(inventory_machine, "hold", "a test")
    done = run(inventory_machine, "doctor", "web-0")
    assert (done.code, done.stderr) == (0, "web/web-0: all 9 checks passed, 3 of them with a warning.\n"), done
    assert [line.partition("? ")[0] for line in done.stdout.splitlines() if line.startswith("! ")] == [
        "! Is its scope enabled",
        "! Are faults active",
        "! Can its maintenance start",
    ]
    assert "    `forewarn release` ends the hold.\n" in done.stdout


def test_doctor_fails_if_a_fault_spoils_the_response(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "fault", "set", "410", "--vm", "web-0")
    done = run(inventory_machine, "doctor", "web-0")
    assert done.code == 1
    assert "✗ What does it get if it polls now? Status 410, because of fault F1 (status-410)" in done.stdout
