"""Network namespaces as machines: a host with bridges, and VMs with an address each. No packet leaves them."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from tests.support.emulator import GUARD, plain_environment


def why_not() -> str | None:
    """Return what is missing to create namespaces, and how to install it."""
    if shutil.which("ip") is None:
        return "the program ip is missing: install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: sudo make test ARGS=tests/namespaces"
    probe = _unique_name("probe")
    made = subprocess.run(["ip", "netns", "add", probe], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        return f"this system does not let root create a network namespace: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return None


def why_no_rules() -> str | None:
    """Return what is missing to filter bridge traffic."""
    return None if shutil.which("nft") else "the program nft is missing: install nftables"


class NetworkNamespace(msgspec.Struct, frozen=True):
    """A network namespace."""

    name: str

    @property
    def within(self) -> tuple[str, ...]:
        """The prefix of a command that runs in the namespace."""
        return ("ip", "netns", "exec", self.name)

    def run(self, *command: str) -> str:
        """Run a program in the namespace, and return its output."""
        done = subprocess.run(
            [*self.within, *command],
            env=plain_environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def ip(self, line: str) -> str:
        """Run ip in the namespace."""
        return self.run("ip", *line.split())


@contextmanager
def create_namespace(name: str) -> Iterator[NetworkNamespace]:
    """Create a namespace with a unique name."""
    full_name = _unique_name(name)
    subprocess.run(["ip", "netns", "add", full_name], check=True)
    try:
        made = NetworkNamespace(full_name)
        made.ip("link set lo up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", full_name], check=True)


class Network:
    """A host, and the VMs on its bridges."""

    def __init__(self, host: NetworkNamespace, stack: ExitStack) -> None:
        self.host = host
        self._stack = stack

    def add_bridge(self, bridge: str, address: str) -> None:
        """Add a bridge to the host, with an address."""
        self.host.ip(f"link add {bridge} type bridge")
        self.host.ip(f"address add {address}/24 dev {bridge}")
        self.host.ip(f"link set {bridge} up")

    def add_vm(self, name: str, bridge: str, address: str, route: str) -> NetworkNamespace:
        """Create a VM with an address on a bridge, and a default route or a route to the endpoint only."""
        vm = self._stack.enter_context(create_namespace(name))
        self.host.ip(f"link add to-{name} type veth peer name eth0 netns {vm.name}")
        self.host.ip(f"link set to-{name} master {bridge} up")
        vm.ip(f"address add {address}/24 dev eth0")
        vm.ip("link set eth0 up")
        vm.ip(f"route add {route}")
        return vm


@contextmanager
def create_network() -> Iterator[Network]:
    """Create a host without VMs; remove everything at the end."""
    with ExitStack() as stack:
        yield Network(stack.enter_context(create_namespace("host")), stack)


def _unique_name(name: str) -> str:
    """Return a name that is never reused: a killed process leaves its namespaces behind, and pids are reused."""
    return f"forewarn-{secrets.token_hex(4)}-{name}"
