"""Ports are assigned to VMs permanently."""

import pytest

from forewarn.core.errors import Invalid
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import run_fleet


async def test_port_is_never_assigned_to_another_vm() -> None:
    """Even a removed VM keeps its port, so that no handler ever reaches the endpoint of another VM."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.ports.assign({"web/web-0": 8180, "web/web-1": 8181})
        await fleet.ports.assign({"web/web-0": 8180})
        with pytest.raises(Invalid, match="belongs to web/web-1"):
            await fleet.ports.assign({"web/web-2": 8181})
        with pytest.raises(Invalid, match="cannot change"):
            await fleet.ports.assign({"web/web-0": 9000})
    async with run_fleet(store=store) as fleet:
        assert fleet.ports.assigned == {"web/web-0": 8180, "web/web-1": 8181}


async def test_ports_leave_room_for_everything_else_in_the_fleet_state() -> None:
    """However many ports were given, the fleet can be held and the service can start."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        with pytest.raises(Invalid, match="too many to store"):
            await fleet.ports.assign({f"{'s' * 128}/{'v' * 120}{n}": n for n in range(1, 4_000)})
        await fleet.ports.assign({f"{'s' * 128}/{'v' * 120}{n}": n for n in range(1, 2_000)})
        await fleet.holds.set(by="operator:" + "x" * 400, reason="y" * 512)
    async with run_fleet(store=store) as fleet:
        assert len(fleet.ports.assigned) == 1_999
