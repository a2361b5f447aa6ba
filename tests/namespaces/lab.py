"""A host with two bridges and five VMs on them; the operators of the fleet are on the host."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.namespaces.network import NetworkNamespace, create_network
from tests.support.emulator import FOREWARN, UpOutput, forewarn_up

FLEET = """
[[scopes]]
name = "left"
kind = "standalone"
vms = [{ name = "left-0", addresses = ["10.99.0.11"] }]

[[scopes]]
name = "right"
kind = "standalone"
vms = [{ name = "right-0", addresses = ["10.99.0.12"] }]

[[scopes]]
name = "spot"
kind = "placement-group"
priority = "low"
vms = [{ name = "spot-0", addresses = ["10.99.0.13"] }]

# Its address is in the network of the endpoint, but the VM with that address is in another network.
[[scopes]]
name = "absent"
kind = "standalone"
vms = [{ name = "absent-0", addresses = ["10.98.0.14"] }]
"""


class Lab(msgspec.Struct, frozen=True):
    """The machines. left, right and spot are in the fleet file; the outsider has the address of the VM absent-0."""

    host: NetworkNamespace
    left: NetworkNamespace
    right: NetworkNamespace
    spot: NetworkNamespace
    stranger: NetworkNamespace
    outsider: NetworkNamespace


@contextmanager
def create_lab() -> Iterator[Lab]:
    """Create the machines. One VM has a route to the endpoint only, the others have a default route to the host."""
    with create_network() as made:
        made.add_bridge("guests", "10.99.0.1")
        made.add_bridge("others", "10.98.0.1")
        yield Lab(
            host=made.host,
            left=made.add_vm("left", "guests", "10.99.0.11", "169.254.169.254 dev eth0"),
            right=made.add_vm("right", "guests", "10.99.0.12", "default via 10.99.0.1"),
            spot=made.add_vm("spot", "guests", "10.99.0.13", "default via 10.99.0.1"),
            stranger=made.add_vm("stranger", "guests", "10.99.0.99", "default via 10.99.0.1"),
            outsider=made.add_vm("outsider", "others", "10.98.0.14", "default via 10.98.0.1"),
        )


@contextmanager
def link_local_service(lab: Lab, directory: Path, *options: str) -> Iterator[UpOutput]:
    """Run the service at 169.254.169.254 on the bridge `guests`, with a port per VM on the host's loopback as well."""
    fleet = directory / "fleet.toml"
    fleet.write_text(FLEET, encoding="utf-8")
    where = ("--fleet", str(fleet), "--listen-link-local", "guests")
    with forewarn_up(directory, *where, *options, within=lab.host.within) as started:
        yield started


class Operator:
    """The operator: uses the command line on the host."""

    def __init__(self, host: NetworkNamespace, started: UpOutput) -> None:
        self._host = host
        self.started = started

    def schedule(self, type_: str, vm: str) -> str:
        """Schedule an event in one hour; return its id."""
        (made,) = self._forewarn("event", "schedule", type_, vm, "--in", "1h")["created"]
        return str(made["id"])

    def advance(self, by: str) -> None:
        """Advance the clock."""
        self._forewarn("clock", "advance", by)

    def status(self, event: str) -> str | None:
        """Return the status of an event, if it exists."""
        statuses = {each["id"]: each["status"] for each in self._forewarn("event", "list")}
        return statuses.get(event)

    def _forewarn(self, *arguments: str) -> Any:
        return json.loads(self._host.run(*FOREWARN, *arguments, "--data", self.started.data, "--output", "json"))
