"""Terms of leases: what is saved under a former term is refused."""

import pytest

from forewarn.fleet import lease_record
from forewarn.fleet.errors import LeaseLost, SaveFailed
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.lease_record import LeaseHolder, LeaseRecords
from forewarn.fleet.main_loop import MainLoop
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import run_fleet


async def test_each_take_over_begins_a_term() -> None:
    async with run_fleet() as fleet:
        assert fleet.cluster.leases.find("host-hv-0") is None
        first = await fleet.cluster.leases.take_over("host-hv-0", holder="process 1", process="a", now=TEN)
        assert first == LeaseHolder(term=1, holder="process 1", process="a", taken_at=TEN)
        second = await fleet.cluster.leases.take_over("host-hv-0", holder="process 2", process="b", now=TEN)
        assert (second.term, fleet.cluster.leases.find("host-hv-0")) == (2, second)


async def test_former_term_guards_nothing_any_more() -> None:
    async with run_fleet() as fleet:
        await fleet.cluster.leases.take_over("clock", holder="process 1", process="a", now=TEN)
        assert list(fleet.cluster.leases.guards("clock", 1).values()) == [fleet.cluster.leases.revision_of("clock")]
        await fleet.cluster.leases.take_over("clock", holder="process 2", process="b", now=TEN)
        with pytest.raises(LeaseLost, match=r"term 1 is now held by process 2 \(term 2\)"):
            fleet.cluster.leases.guards("clock", 1)
        with pytest.raises(LeaseLost, match="is now gone"):
            fleet.cluster.leases.guards("other", 1)


async def test_term_does_not_begin_while_the_replica_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, a stopped watch would hold back every later change under the lease."""
    monkeypatch.setattr(lease_record, "REACH_SECONDS", 0.0)
    store = MemoryStore()
    async with store.watch() as changes, tasks_until_exit() as tasks:
        main_loop = MainLoop(store, tasks, on_followed=lambda: None)
        leases = LeaseRecords(main_loop)
        await main_loop.fill(changes)
        with pytest.raises(SaveFailed, match="term 1 of the lease registry cannot begin"):
            await leases.take_over("registry", holder="process 1", process="a", now=TEN)
        tasks.create_task(main_loop.follow(changes))
        monkeypatch.undo()
        assert (await leases.take_over("registry", holder="process 1", process="a", now=TEN)).term == 2
