"""VMs poll 169.254.169.254 from their own addresses, as on Azure, with unmodified clients."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.namespaces.lab import Lab, Operator, link_local_service
from tests.namespaces.network import NetworkNamespace
from tests.support.emulator import FOREWARN, GUARD, events_path, plain_environment
from tests.third_party_clients.curl import Answer, Curl

ENDPOINT = "http://169.254.169.254"
EVENTS = ENDPOINT + events_path()
METADATA = ("--header", "Metadata: true")
PROGRAMS = Path(__file__).parents[1] / "third_party_clients" / "programs"

COULD_NOT_CONNECT = 7
TIMED_OUT = 28


def approving(event: str) -> tuple[str, ...]:
    return (*METADATA, "--data", json.dumps({"StartRequests": [{"EventId": event}]}))


def events_in(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200
    return {event["EventId"]: event["Resources"] for event in json.loads(answer.body)["Events"]}


def exit_status(curl: Curl, *arguments: str) -> int:
    status, _ = curl.start(arguments).finish()
    return status


@pytest.mark.parametrize(("vm", "name"), [("left", b"left-0"), ("right", b"right-0")])
def test_vm_is_identified_by_its_address(request: pytest.FixtureRequest, vm: str, name: bytes) -> None:
    curl = request.getfixturevalue(vm)
    response = curl(*METADATA, f"{ENDPOINT}/metadata/instance/compute/name?api-version=2020-07-01&format=text")
    assert (response.status, response.body) == (200, name)


def test_vm_sees_only_the_events_of_its_scope(operator: Operator, left: Curl, right: Curl) -> None:
    of_left, of_right = operator.schedule("Reboot", "left-0"), operator.schedule("Freeze", "right-0")
    assert events_in(left(*METADATA, EVENTS)) == {of_left: ["left-0"]}
    assert events_in(right(*METADATA, EVENTS)) == {of_right: ["right-0"]}


def test_vm_can_approve_only_events_of_its_scope(operator: Operator, left: Curl, right: Curl) -> None:
    event = operator.schedule("Reboot", "left-0")
    refused = right(*approving(event), EVENTS)
    assert (refused.status, json.loads(refused.body)) == (400, {"error": f"Bad request: there is no event {event}"})
    assert operator.status(event) == "Scheduled"
    assert left(*approving(event), EVENTS).status == 200
    assert operator.status(event) == "Started"


@pytest.mark.parametrize("question", [METADATA, (*METADATA, "--data", '{"StartRequests":[]}')], ids=["GET", "POST"])
def test_unknown_address_is_refused(lab: Lab, operator: Operator, tmp_path: Path, question: tuple[str, ...]) -> None:
    response = Curl(tmp_path, *lab.stranger.within)(*question, EVENTS)
    refusal = {"error": "Forbidden: the address of this request belongs to no known VM"}
    assert (response.status, json.loads(response.body)) == (403, refusal)


def test_vm_in_another_network_is_not_served(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    """The endpoint is on one interface; on another one, a source address does not identify a VM."""
    assert exit_status(Curl(tmp_path, *lab.outsider.within), *METADATA, EVENTS) == COULD_NOT_CONNECT


def test_address_counts_only_in_its_network(lab: Lab, tmp_path: Path) -> None:
    """Different VMs can have the same address in different networks."""
    with link_local_service(lab, tmp_path, "--network", "elsewhere"):
        assert Curl(tmp_path, *lab.left.within)(*METADATA, EVENTS).status == 403


@pytest.mark.parametrize(
    ("interfaces", "status"),
    [("guests,others", 200), ("guests,others=elsewhere", 403)],
    ids=["one network", "a network each"],
)
def test_each_interface_serves_its_network(lab: Lab, tmp_path: Path, interfaces: str, status: int) -> None:
    with link_local_service(lab, tmp_path, "--listen-link-local", interfaces):
        assert Curl(tmp_path, *lab.left.within)(*METADATA, EVENTS).status == 200
        assert Curl(tmp_path, *lab.outsider.within)(*METADATA, EVENTS).status == status
    assert "169.254.169.254" not in lab.host.ip("address show")


def test_spoofed_address_gets_no_response(lab: Lab, operator: Operator, left: Curl, right: Curl) -> None:
    """With a permanent neighbour entry, responses go to the owner of the address."""
    operator.schedule("Reboot", "left-0")
    hardware = json.loads(lab.left.ip("-json link show eth0"))[0]["address"]
    lab.host.ip(f"neighbour replace 10.99.0.11 lladdr {hardware} dev guests nud permanent")
    lab.right.ip("address add 10.99.0.11/32 dev lo")
    try:
        borrowing = ("--interface", "10.99.0.11", "--connect-timeout", "2")
        assert exit_status(right, *METADATA, *borrowing, EVENTS) == TIMED_OUT
    finally:
        lab.right.ip("address delete 10.99.0.11/32 dev lo")
        lab.host.ip("neighbour delete 10.99.0.11 dev guests")
    assert len(events_in(left(*METADATA, EVENTS))) == 1


@pytest.mark.parametrize("vm", ["left", "right"])
def test_no_vm_reaches_the_operator_api_or_the_port_of_another_vm(
    lab: Lab, operator: Operator, tmp_path: Path, vm: str
) -> None:
    machine: NetworkNamespace = getattr(lab, vm)
    at_host, at_vm = Curl(tmp_path, *lab.host.within), Curl(tmp_path, *machine.within)
    urls = {"/healthz": operator.started.operator_url} | {
        f"/metadata/versions?{name}": url for name, url in operator.started.guest_urls.items()
    }
    assert len(urls) == 5
    for path, url in urls.items():
        assert at_host(*METADATA, url + path).status == 200
        port = url.rpartition(":")[2]
        for address in ("127.0.0.1", "10.99.0.1", "169.254.169.254"):
            reached = exit_status(at_vm, *METADATA, f"http://{address}:{port}{path}")
            assert reached == COULD_NOT_CONNECT, (address, port)


@pytest.mark.parametrize("with_token", [False, True], ids=["without a token", "with the admin's token"])
def test_guest_address_does_not_serve_the_operator_api(operator: Operator, left: Curl, with_token: bool) -> None:
    """Not even with an operator's token."""
    token = Path(operator.started.token_file).read_text().strip()
    headers = (*METADATA, *(("--header", f"Authorization: Bearer {token}") if with_token else ()))
    paths = ("/v1/vms", "/v1/events", "/v1/fleet", "/v1/tokens", "/v1/watch", "/metrics", "/healthz", "/docs")
    assert {path: left(*headers, ENDPOINT + path).status for path in paths} == dict.fromkeys(paths, 404)
    made = left(*headers, "--data", '{"name": "mine", "role": "admin"}', f"{ENDPOINT}/v1/tokens")
    assert (made.status, b"secret" in made.body) == (404, False)


def test_the_python_program_of_2017_runs_unmodified(lab: Lab, operator: Operator) -> None:
    event = operator.schedule("Reboot", "left-0")
    url = ENDPOINT + events_path("2017-03-01")
    response = lab.left.run(sys.executable, str(PROGRAMS / "python_of_2017.py"), url, "_left-0")
    assert json.loads(response) == {"seen": 1, "mine": [event], "answers": [200]}
    assert operator.status(event) == "Started"


def test_the_preemption_plug_in_of_dask_runs_unmodified(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    command = [*lab.spot.within, sys.executable, str(PROGRAMS / "dask_worker.py"), str(tmp_path)]
    with subprocess.Popen(command, env=plain_environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            operator.schedule("Preempt", "spot-0")
            operator.advance("3601s")
            assert process.stdout.readline() == "closed\n"
            assert process.wait(GUARD) == 0
        finally:
            process.kill()


def test_link_local_address_exists_only_while_the_service_runs(lab: Lab, tmp_path: Path) -> None:
    with link_local_service(lab, tmp_path):
        assert "inet 169.254.169.254/32" in lab.host.ip("address show dev guests")
    assert "169.254.169.254" not in lab.host.ip("address show")


def test_missing_interface_is_named(lab: Lab, tmp_path: Path) -> None:
    command = [*lab.host.within, *FOREWARN, "up", "--ephemeral", "--operator", "127.0.0.1:0", "--listen", "none"]
    done = subprocess.run(
        [*command, "--listen-link-local", "nowhere"],
        env=plain_environment(XDG_RUNTIME_DIR=str(tmp_path)),
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert done.returncode != 0
    assert "cannot add 169.254.169.254 to interface nowhere" in done.stderr
