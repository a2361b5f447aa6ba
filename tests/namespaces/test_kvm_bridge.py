"""The rules of the KVM bridge guide are loaded, and guests try to get around them."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.namespaces.network import NetworkNamespace, create_namespace, why_no_rules, why_not
from tests.support.program import PROGRAM
from tests.support.serve_process import ServeProcess, run_serve
from tests.third_party_clients.curl import Curl

GUIDE = Path(__file__).parents[2] / "docs/howto/kvm-bridge.md"
NAME = "http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text"
EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
METADATA = ("--header", "Metadata: true")
IMPATIENT = ("--connect-timeout", "2")
COULD_NOT_CONNECT, TIMED_OUT = 7, 28

SETTINGS = """
data = "data"
fleet = "fleet.toml"
listen_link_local = "br0"
operator = "{operator}"
operator_without_tls = true
platform = "simulated"
"""


def block(language: str) -> str:
    """Return the guide's code in that language."""
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


class BridgeHost(msgspec.Struct, frozen=True):
    """The host of the guide, and its guests."""

    host: NetworkNamespace
    guests: tuple[NetworkNamespace, NetworkNamespace]

    def load_rules(self, directory: Path) -> None:
        """Load the rules of the guide."""
        (directory / "rules.nft").write_text(block("nft"))
        self.host.run("nft", "-f", str(directory / "rules.nft"))

    def forget_neighbours(self) -> None:
        """Clear the host's neighbour table."""
        self.host.ip("neighbour flush dev br0")


@pytest.fixture
def bridge_host() -> Iterator[BridgeHost]:
    if (reason := why_not() or why_no_rules()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        host = stack.enter_context(create_namespace("kvm-host"))
        for line in ("link add br0 type bridge", "address add 192.0.2.1/24 dev br0", "link set br0 up"):
            host.ip(line)
        host.ip("address add 169.254.169.254/32 dev br0")
        yield BridgeHost(host, (_guest(stack, host, 0), _guest(stack, host, 1)))


def _guest(stack: ExitStack, host: NetworkNamespace, number: int) -> NetworkNamespace:
    guest = stack.enter_context(create_namespace(f"kvm-guest-{number}"))
    host.ip(f"link add vnet{number} type veth peer name eth0 netns {guest.name}")
    host.ip(f"link set vnet{number} master br0 up")
    guest.ip(f"link set eth0 address 52:54:00:00:00:1{number}")
    guest.ip(f"address add 192.0.2.1{number}/24 dev eth0")
    guest.ip("link set eth0 up")
    guest.ip("route add default via 192.0.2.1")
    return guest


@contextmanager
def service(bridge_host: BridgeHost, directory: Path, operator: str = "127.0.0.1:0") -> Iterator[ServeProcess]:
    with run_serve(
        directory, SETTINGS.format(operator=operator), fleet=block("toml"), within=bridge_host.host.within
    ) as started:
        yield started


def curls(bridge_host: BridgeHost, directory: Path) -> tuple[Curl, Curl]:
    first, second = (Curl(directory, *guest.within) for guest in bridge_host.guests)
    return first, second


def exit_status(curl: Curl, *arguments: str) -> int:
    status, _ = curl.start((*IMPATIENT, *arguments)).finish()
    return status


def test_each_guest_sees_itself_and_its_own_events_behind_the_rules(bridge_host: BridgeHost, tmp_path: Path) -> None:
    bridge_host.load_rules(tmp_path)
    with service(bridge_host, tmp_path):
        for number, curl in enumerate(curls(bridge_host, tmp_path)):
            response = curl(*METADATA, NAME)
            assert (response.status, response.body) == (200, f"web-{number}".encode())
            assert curl(*METADATA, EVENTS).status == 200


def test_doctor_on_the_host_finds_no_problem_with_a_polling_guest(bridge_host: BridgeHost, tmp_path: Path) -> None:
    bridge_host.load_rules(tmp_path)
    with service(bridge_host, tmp_path):
        first, _ = curls(bridge_host, tmp_path)
        assert first(*METADATA, EVENTS).status == 200
        found = bridge_host.host.run(str(PROGRAM), "doctor", "web-0", "--data", str(tmp_path / "data")).splitlines()
    assert [line for line in found if not line.startswith("✓ ")] == []
    assert found[-1] == (
        "✓ Does its endpoint answer? Yes, at http://169.254.169.254: this machine is not the VM and gets status 403."
    )


def test_without_the_rules_a_guest_can_use_the_address_of_a_stopped_guest(
    bridge_host: BridgeHost, tmp_path: Path
) -> None:
    """Without this, the next test would prove nothing."""
    with service(bridge_host, tmp_path):
        _, second = curls(bridge_host, tmp_path)
        bridge_host.guests[0].ip("link set eth0 down")
        bridge_host.guests[1].ip("address add 192.0.2.10/24 dev eth0")
        response = second(*METADATA, "--interface", "192.0.2.10", NAME)
        assert (response.status, response.body) == (200, b"web-0")


def test_with_the_rules_a_guest_cannot_use_another_address(bridge_host: BridgeHost, tmp_path: Path) -> None:
    bridge_host.load_rules(tmp_path)
    with service(bridge_host, tmp_path):
        _, second = curls(bridge_host, tmp_path)
        bridge_host.guests[0].ip("link set eth0 down")
        bridge_host.guests[1].ip("address add 192.0.2.10/24 dev eth0")
        assert exit_status(second, *METADATA, "--interface", "192.0.2.10", NAME) == TIMED_OUT
        # Forget the failed neighbour lookup from the wrong address.
        bridge_host.guests[1].ip("neighbour flush dev eth0")
        assert second(*METADATA, "--interface", "192.0.2.11", NAME).body == b"web-1"


def test_with_the_rules_a_copied_hardware_address_does_not_help(bridge_host: BridgeHost, tmp_path: Path) -> None:
    bridge_host.load_rules(tmp_path)
    with service(bridge_host, tmp_path):
        _, second = curls(bridge_host, tmp_path)
        bridge_host.guests[0].ip("link set eth0 down")
        for line in ("link set eth0 down", "link set eth0 address 52:54:00:00:00:10", "link set eth0 up"):
            bridge_host.guests[1].ip(line)
        bridge_host.guests[1].ip("address add 192.0.2.10/24 dev eth0")
        bridge_host.forget_neighbours()
        for address in ("192.0.2.10", "192.0.2.11"):
            assert exit_status(second, *METADATA, "--interface", address, NAME) != 0


def test_with_the_rules_a_guest_cannot_impersonate_the_endpoint(bridge_host: BridgeHost, tmp_path: Path) -> None:
    """Its ARP replies for 169.254.169.254 reach no other guest."""
    bridge_host.load_rules(tmp_path)
    with service(bridge_host, tmp_path):
        first, _ = curls(bridge_host, tmp_path)
        bridge_host.guests[0].ip("route add 169.254.169.254 dev eth0")
        bridge_host.guests[1].ip("address add 169.254.169.254/32 dev eth0")
        bridge_host.guests[0].ip("neighbour flush dev eth0")
        assert first(*METADATA, NAME).body == b"web-0"
        assert bridge_host.guests[0].ip("neighbour show 169.254.169.254") != ""
        assert "52:54:00:00:00:11" not in bridge_host.guests[0].ip("neighbour show 169.254.169.254")


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.1", "169.254.169.254"])
def test_guests_cannot_reach_an_operator_api_on_loopback(bridge_host: BridgeHost, tmp_path: Path, address: str) -> None:
    with service(bridge_host, tmp_path) as started:
        port = started.operator_url.rpartition(":")[2]
        assert Curl(tmp_path, *bridge_host.host.within)(f"{started.operator_url}/healthz").status == 200
        for curl in curls(bridge_host, tmp_path):
            assert exit_status(curl, f"http://{address}:{port}/healthz") == COULD_NOT_CONNECT


def test_operator_api_on_the_bridge_refuses_callers_without_token_and_guests_behind_the_rules(
    bridge_host: BridgeHost, tmp_path: Path
) -> None:
    with service(bridge_host, tmp_path, operator="192.0.2.1:8170") as started:
        first, second = curls(bridge_host, tmp_path)
        assert first(f"{started.operator_url}/v1/vms").status == 401
        bridge_host.load_rules(tmp_path)
        for curl in (first, second):
            assert exit_status(curl, f"{started.operator_url}/healthz") == TIMED_OUT
            assert curl(*METADATA, NAME).status == 200
