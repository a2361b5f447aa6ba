"""The memory store keeps the contract."""

import pytest

from forewarn.store.memory import MemoryStore
from forewarn.testing.store_contract import OpenStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        async def open_empty() -> MemoryStore:
            return MemoryStore()

        return open_empty
