"""A machine with a service (in a thread, on manual time) and a small fleet; each test uses VMs of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.compose import run_service
from forewarn.settings import EMULATOR, load_settings
from forewarn.testing.background import BackgroundContext
from tests.support.program import LOOPBACK, Machine

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


class SilentReporter:
    """Nobody needs to know how this service starts."""

    def report(self, sentence: str) -> None: ...

    def fleet_file_ignored(self, source: Path) -> None: ...

    def fill_progress(self, done: int, total: int) -> None: ...


@contextmanager
def run_service_machine(home: Path, fleet: str = FLEET) -> Iterator[ServiceMachine]:
    """Run the service in a thread of this process, as `forewarn up --ephemeral --manual-time` would for this user."""
    service_machine = ServiceMachine(home)
    file = home / "fleet.toml"
    file.write_text(fleet)
    flags = {
        "ephemeral": True,
        "manual_time": True,
        "fleet": str(file),
        "listen": f"{LOOPBACK}:0",
        "operator": "127.0.0.1:0",
    }
    settings = load_settings(EMULATOR, flags=flags, environ={}).settings
    service = BackgroundContext(
        lambda: run_service(settings, EMULATOR, environ=service_machine.environment, reporter=SilentReporter()),
        name="service of a test",
    )
    service.start()
    try:
        yield service_machine
    finally:
        service.stop()
