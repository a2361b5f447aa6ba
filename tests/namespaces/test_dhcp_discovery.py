"""Discovery with a real DHCP server, real broadcasts and the real service."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.namespaces.dnsmasq import dnsmasq, why_no_dnsmasq
from tests.namespaces.network import NetworkNamespace, create_network
from tests.support.emulator import GUARD, forewarn_up, plain_environment

PROGRAMS = Path(__file__).with_name("programs")
DISCOVER = (sys.executable, str(PROGRAMS / "discover.py"))
ADDRESSES = "10.99.0.50,10.99.0.99,255.255.255.0"
OF_THE_ENDPOINT = "245,10.99.0.1"
NOWHERE = "10.97.0.0/24 via 10.99.0.1"

FLEET = """
[[scopes]]
name = "shop"
kind = "cloud-service"
vms = [{ name = "FrontEnd_IN_0", addresses = ["10.99.0.11"] }]
"""


class Site(msgspec.Struct, frozen=True):
    """A host with two networks, and a VM in both, without a route to the link-local address."""

    host: NetworkNamespace
    vm: NetworkNamespace

    def discover(self, *interfaces: str, before: tuple[str, ...] = ()) -> Any:
        """Discover the endpoint from the VM, through a wrapper command if given; return the result."""
        return json.loads(self.vm.run(*before, *DISCOVER, *interfaces))


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    if (reason := why_no_dnsmasq()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with create_network() as made:
        made.add_bridge("silent", "10.98.0.1")
        made.add_bridge("guests", "10.99.0.1")
        vm = made.add_vm("classic", "guests", "10.99.0.11", NOWHERE)
        made.host.ip(f"link add to-silence type veth peer name eth1 netns {vm.name}")
        made.host.ip("link set to-silence master silent up")
        vm.ip("address add 10.98.0.11/24 dev eth1")
        vm.ip("link set eth1 up")
        yield Site(made.host, vm)


def fleet_file(directory: Path) -> Path:
    file = directory / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    return file


@contextmanager
def service(site: Site, directory: Path) -> Iterator[None]:
    """Serve the VM at port 80 of the host's address."""
    program = (sys.executable, str(PROGRAMS / "serve_role_instance.py"))
    with subprocess.Popen(
        [*site.host.within, *program, str(fleet_file(directory)), "10.99.0.1", "80"],
        env=plain_environment(XDG_RUNTIME_DIR=str(directory)),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["guest_urls"] == {"shop/FrontEnd_IN_0": "http://10.99.0.1:80"}
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(GUARD)
            process.kill()


def test_endpoint_is_the_address_in_option_245(site: Site, tmp_path: Path) -> None:
    with service(site, tmp_path), dnsmasq(site.host, "guests", ADDRESSES, OF_THE_ENDPOINT):
        assert site.discover() == {"endpoint": "http://10.99.0.1"}
        assert site.discover("eth0") == {"endpoint": "http://10.99.0.1"}


def test_discovery_takes_no_lease(site: Site, tmp_path: Path) -> None:
    with service(site, tmp_path), dnsmasq(site.host, "guests", ADDRESSES, OF_THE_ENDPOINT) as server:
        site.discover()
        assert set(server.end()) == {"DHCPDISCOVER", "DHCPOFFER"}


def test_link_local_address_is_tried_first(site: Site, tmp_path: Path) -> None:
    """VMs in a virtual network have their endpoint at the link-local address, and no DHCP request is sent."""
    at_usual_address = ("--fleet", str(fleet_file(tmp_path)), "--listen-link-local", "guests")
    site.vm.ip("route add 169.254.169.254 dev eth0")
    try:
        with (
            dnsmasq(site.host, "guests", ADDRESSES, OF_THE_ENDPOINT) as server,
            forewarn_up(tmp_path, *at_usual_address, within=site.host.within),
        ):
            assert site.discover() == {"endpoint": "http://169.254.169.254"}
            assert server.end() == []
    finally:
        site.vm.ip("route delete 169.254.169.254 dev eth0")


def test_server_without_option_245_is_named(site: Site) -> None:
    with dnsmasq(site.host, "guests", ADDRESSES):
        result = site.discover()
    assert result["error"] == "EndpointNotFound"
    assert "the DHCP server 10.99.0.1 has no option 245 for this VM" in result["message"]


def test_address_without_a_service_is_named(site: Site) -> None:
    with dnsmasq(site.host, "guests", ADDRESSES, OF_THE_ENDPOINT):
        result = site.discover()
    assert result["error"] == "EndpointUnavailable"
    assert "the endpoint is http://10.99.0.1, but it does not serve Scheduled Events" in result["message"]


def test_network_without_a_dhcp_server_has_no_offers(site: Site) -> None:
    program = (
        "from forewarn.client.dhcp_socket import DhcpSocket, active_interfaces as up\n"
        "with DhcpSocket(up()) as broadcast: print([each.name for each in up()], list(broadcast.discover(0.2)))"
    )
    assert site.vm.run(sys.executable, "-c", program) == "['eth0', 'eth1'] []\n"


def test_missing_interface_is_named(site: Site) -> None:
    result = site.discover("eth7")
    assert (result["error"], "no network interface eth7 is up" in result["message"]) == ("InterfaceNotFound", True)


def test_interface_that_is_down_is_not_used(site: Site) -> None:
    site.vm.ip("link set eth1 down")
    try:
        assert site.discover("eth1")["error"] == "InterfaceNotFound"
    finally:
        site.vm.ip("link set eth1 up")


def test_missing_permission_is_reported(site: Site) -> None:
    result = site.discover(before=("setpriv", "--bounding-set=-net_bind_service"))
    assert result["error"] == "DhcpNotAllowed"
    assert "port 68: permission denied; run it once as root or with CAP_NET_BIND_SERVICE" in result["message"]


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "exclusive"])
def test_port_68_is_shared_with_another_dhcp_client_if_possible(site: Site, tmp_path: Path, is_shared: bool) -> None:
    holding = (
        "import socket, sys, subprocess\n"
        "held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, {int(is_shared)})\n"
        "held.bind(('', 68))\n"
        "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    )
    with service(site, tmp_path), dnsmasq(site.host, "guests", ADDRESSES, OF_THE_ENDPOINT):
        result = site.discover(before=(sys.executable, "-c", holding))
    if is_shared:
        assert result == {"endpoint": "http://10.99.0.1"}
    else:
        assert (result["error"], "another program uses the port exclusively" in result["message"]) == (
            "DhcpNotAllowed",
            True,
        )
