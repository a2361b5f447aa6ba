"""The SQLite store keeps the contract, and says clearly what is wrong with a data directory."""

from pathlib import Path

import pytest

from forewarn.store.sqlite import SqliteStore
from forewarn.testing.store_contract import DurableStoreContract, OpenStore


class TestSqliteStore(DurableStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore.open(tmp_path / "data")
