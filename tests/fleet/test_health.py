"""Health check: whether the store can write, and every check that other parts add."""

import asyncio
from pathlib import Path

import pytest

from forewarn.fleet import health
from forewarn.fleet.errors import SaveFailed
from forewarn.store.port import StoreFull
from tests.core.sample_scopes import scope, vm, web_scope
from tests.fleet.fleets import FailingStore, run_fleet


class SickStore(FailingStore):
    """A store whose check fails when it is full, hangs when told so, and is counted."""

    checks = 0
    checked_size = 0
    hangs = False

    async def check(self, size: int = 0) -> None:
        self.checks += 1
        self.checked_size = size
        if self.hangs:
            await asyncio.Event().wait()
        if self.full:
            raise StoreFull(Path("/test"))


async def test_service_that_has_just_saved_is_ready_without_a_store_check() -> None:
    store = SickStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        assert await fleet.health.problems() == ()
        assert store.checks == 0


async def test_full_store_makes_the_service_unready_until_there_is_room() -> None:
    store = SickStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.full = True
        with pytest.raises(SaveFailed):
            await fleet.holds.set(by="ada", reason="audit")
        [problem] = await fleet.health.problems()
        assert problem.startswith("the store cannot write: no space left for")
        store.full = False
        assert await fleet.health.problems() == ()


async def test_small_save_does_not_prove_that_a_large_one_is_possible() -> None:
    """After a refused save the service is not ready until one of that size can be saved."""
    store = SickStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.full = True
        with pytest.raises(SaveFailed):
            await fleet.inventory.add_scope(scope("large", *(vm(f"vm-{n}") for n in range(100))), by="ada")
        store.full = False
        await fleet.holds.set(by="ada", reason="audit")
        assert await fleet.health.problems() == ()
        assert store.checked_size > 5_000
        checks = store.checks
        await fleet.health.problems()
        assert store.checks == checks


async def test_concurrent_health_checks_share_one_store_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RECENT_WRITE", -1.0)
    store = SickStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        assert set(await asyncio.gather(*(fleet.health.problems() for _ in range(100)))) == {()}
        assert store.checks == 1


async def test_store_timeout_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RECENT_WRITE", -1.0)
    monkeypatch.setattr(health, "STORE_TIMEOUT", 0.01)
    store = SickStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.hangs = True
        [problem] = await fleet.health.problems()
        assert problem.startswith("the store has not answered")


async def test_problems_of_added_checks_are_reported() -> None:
    async with run_fleet(web_scope()) as fleet:
        said: list[str | None] = ["guests cannot reach it"]
        fleet.health.add_check(lambda: said[0])
        assert await fleet.health.problems() == ("guests cannot reach it",)
        said[0] = None
        assert await fleet.health.problems() == ()
