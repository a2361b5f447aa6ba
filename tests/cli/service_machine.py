"""A machine with a service (in a thread, with a manual clock) and a small fleet; each test uses its own VMs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.in_process import run_json, run_up
from tests.support.program import Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 4 }]

[[scopes]]
name = "batch"
kind = "placement-group"
scale_set = "batch"
priority = "low"
vms = [{ count = 60 }]

[[scopes]]
name = "pair"
kind = "availability-set"
approval = "all"
vms = [{ name = "pair-{n}", count = 2 }]
"""

INVENTORY = """
[[scopes]]
name = "db"
kind = "standalone"

[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 2, first_address = "10.0.0.1" }]
"""


class ServiceMachine(Machine):
    """The machine; tests that share it use different VMs."""

    used = -1

    def take_vm(self) -> str:
        """Return a VM that no other test uses."""
        self.used += 1
        return f"batch_{self.used}"


@contextmanager
def run_service_machine(home: Path, fleet: str = FLEET) -> Iterator[ServiceMachine]:
    """Run the service in a thread of this process, as `forewarn up --ephemeral --manual-time` would for this user."""
    service_machine = ServiceMachine(home)
    file = home / "fleet.toml"
    file.write_text(fleet)
    with run_up(service_machine, fleet=file):
        yield service_machine


def schedule_event(machine: Machine, *arguments: str) -> str:
    """Schedule one event and return its id."""
    (made,) = run_json(machine, "event", "schedule", *arguments)["created"]
    id_: str = made["id"]
    return id_
