"""A machine on which a service runs that keeps nothing and whose time stands still, with a small fleet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.stage import Machine

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


class Shop(Machine):
    """The machine; tests that share it take VMs that no other test uses."""

    used = -1

    def taken(self) -> str:
        """Return a VM that no other test uses."""
        self.used += 1
        return f"batch_{self.used}"


@contextmanager
def open_shop(home: Path, fleet: str = FLEET) -> Iterator[Shop]:
    """Have the service run for a while."""
    shop = Shop(home)
    (home / "fleet.toml").write_text(fleet)
    with shop.up("--ephemeral", "--manual-time", "--fleet", "fleet.toml"):
        yield shop
