"""The NATS store keeps the contract on a real server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forewarn.store.nats.store import NatsStore
from tests.store.contract import DurableStoreContract, OpenStore
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


class TestNatsStore(DurableStoreContract):
    @pytest.fixture
    async def open_store(self, nats_server: NatsCluster, tmp_path: Path) -> AsyncIterator[OpenStore]:
        settings = await nats_server.create_cell()
        yield lambda: NatsStore.open(settings, tmp_path)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert [name for name in names if name.startswith(("follow", "write", "save"))] == []
