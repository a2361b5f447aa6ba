"""The guest port: a whole fleet has everything that the guest endpoint needs."""

from forewarn.fleet.guest_port import GuestFleet
from tests.fleet.fleets import run_fleet


async def test_whole_fleet_has_the_guest_port() -> None:
    needed = {name for name in vars(GuestFleet) if not name.startswith("_")}
    assert needed == {"clock", "replica", "scopes", "events", "last_seen", "ports", "health"}
    async with run_fleet() as fleet:
        port: GuestFleet = fleet
        assert all(hasattr(port, name) for name in needed)
