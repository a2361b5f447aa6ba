"""The memory store keeps the contract."""

import asyncio

import pytest

from forewarn.store.memory import MemoryStore
from forewarn.store.port import Record
from tests.store.contract import WEB, OpenStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        async def open_empty() -> MemoryStore:
            return MemoryStore()

        return open_empty


async def test_other_tasks_run_during_calls_of_the_memory_store() -> None:
    """As with a store that really stores: code that forgets this must not pass its tests here."""
    store = MemoryStore()
    saving = asyncio.create_task(store.save(WEB, b"value", [], expected=None))
    loading = asyncio.create_task(store.load(WEB))
    await asyncio.sleep(0)
    assert (saving.done(), loading.done()) == (False, False)
    assert await loading == Record(WEB, b"value", await saving)
