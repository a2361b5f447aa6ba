"""A machine with a running service (ephemeral, manual time) and a small fleet; each test uses VMs of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


class ServiceMachine(Machine):
    """The machine; tests that share it take VMs that no other test uses."""

    used = -1

    def take_vm(self) -> str:
        """Return a VM that no other test uses."""
        self.used += 1
        return f"batch_{self.used}"


@contextmanager
def run_service_machine(home: Path, fleet: str = FLEET) -> Iterator[ServiceMachine]:
    """Have the service run for a while."""
    service_machine = ServiceMachine(home)
    (home / "fleet.toml").write_text(fleet)
    with service_machine.up("--ephemeral", "--manual-time", "--fleet", "fleet.toml"):
        yield service_machine
