"""An open SQLite store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forewarn.store.sqlite.store import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "data")
    yield store
    await store.aclose()
