"""`forewarn doctor`: its checks and hints."""

import socket
from urllib.request import Request, urlopen

import pytest

from forewarn.api import v1
from forewarn.cli.commands.doctor import endpoint_checks
from tests.cli.in_process import run, run_json
from tests.cli.service_machine import ServiceMachine


def test_doctor_passes_for_a_vm_that_polls(inventory_machine: ServiceMachine) -> None:
    url = run_json(inventory_machine, "vm", "show", "web-0")["guest_url"]
    request = Request(f"{url}/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"})
    urlopen(request, timeout=30).close()
    well = run(inventory_machine, "doctor", "web-0")
    assert (well.code, well.stderr) == (0, "web/web-0: all 7 checks passed.\n"), well
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
