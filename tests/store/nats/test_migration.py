"""Migration from and into a cell: in the order of the stream, and only while this process has the cell."""

import asyncio
from secrets import token_hex

import pytest

from forewarn.store.migration import MigrationCursor, MigrationPage, MigrationState, TargetUsed
from forewarn.store.nats import migration
from forewarn.store.nats.migration import CellAccess, NatsSource, NatsTarget
from forewarn.store.port import CellInUse, Extent, JournalRow, Record, StoreMissing, StoreUnavailable
from tests.store.contract import BATCH, WEB, entry
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process
STATE = MigrationState(source="other", source_state="1", change="c")
ROWS = tuple(JournalRow(position, key, entry(position)) for position, key in enumerate((WEB, WEB, BATCH, WEB), 1))
PAGE = MigrationPage(ROWS, (Record(WEB, b"web", 1), Record(BATCH, b"batch", 2)), MigrationCursor(4, 2))


async def test_written_pages_are_read_in_order_from_any_cursor(
    nats_server: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "PAGE_ITEMS", 1)
    settings = nats_server.settings(f"m-{token_hex(4)}")
    cell = await CellAccess.open(settings, "me")
    target = NatsTarget(cell, 1)
    await target.begin(STATE, Extent(0, 5_000))
    await target.write(PAGE)
    await target.finish()
    await cell.release()
    await cell.claim()
    source = NatsSource(cell)
    pages = [page async for page in source.pages(MigrationCursor())]
    found = [(row.key, row.entry) for page in pages for row in page.rows]
    assert found == [(row.key, row.entry) for row in ROWS]
    assert [(r.key, r.value) for page in pages for r in page.records] == [(WEB, b"web"), (BATCH, b"batch")]
    for number, page in enumerate(pages):
        assert [later async for later in source.pages(page.cursor)] == pages[number + 1 :]
    positions = [row.position for page in pages for row in page.rows]
    assert await source.extent() == Extent(6_999, positions[-1])
    assert positions == sorted({*positions, 7_000})[1:]
    assert await source.size() > len(PAGE.records)
    assert await source.read_state() == await source.read_state()
    await cell.aclose()


async def test_other_process_takes_the_cell_away(nats_server: NatsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = await nats_server.create_cell()
    cell, other = await CellAccess.open(settings, "me"), await CellAccess.open(settings, "you")
    with pytest.raises(StoreUnavailable):
        await cell.check()
    await cell.claim()
    await cell.check()
    monkeypatch.setattr(migration, "CLAIM_SECONDS", 0.1)
    monkeypatch.setattr(migration, "MEMBER_SECONDS", -3.0)  # it waits for no other process to end
    with pytest.raises(CellInUse):
        await other.claim()
    again = await CellAccess.open(settings, "me")
    await again.claim()  # in the name of the same member: the first process is taken for ended
    async with asyncio.timeout(60):
        while True:
            try:
                await cell.check()
            except CellInUse:
                break
            await asyncio.sleep(0.05)
    for each in (cell, other, again):
        await each.aclose()


async def test_claim_that_was_not_renewed_in_time_is_repeated(nats_server: NatsCluster) -> None:
    cell = await CellAccess.open(await nats_server.create_cell(), "me")
    await cell.claim()
    lease = cell._lease
    assert lease is not None
    await lease.release()  # as if the process had been suspended for longer than the lease
    validity = [lease.is_valid]
    await cell.check()
    validity.append(lease.is_valid)
    assert validity == [False, True]
    await cell.aclose()


async def test_cell_with_content_is_neither_filled_nor_cleared(nats_server: NatsCluster) -> None:
    settings = nats_server.settings(f"m-{token_hex(4)}")
    cell = await CellAccess.open(settings, "me")
    target = NatsTarget(cell, 1)
    await target.clear()  # of nothing
    await target.begin(STATE, Extent(0, 0))
    await target.write(PAGE)
    await target.finish()
    with pytest.raises(TargetUsed, match="remove it with `nats stream rm "):
        await NatsTarget(cell, 1).begin(STATE, Extent(0, 0))
    with pytest.raises(TargetUsed):
        await NatsTarget(cell, 1).clear()
    await cell.aclose()


async def test_way_back_from_a_cell_that_was_created_instead_of_restored_is_named(nats_server: NatsCluster) -> None:
    cell = await CellAccess.open(await nats_server.create_cell(), "me")
    with pytest.raises(TargetUsed, match="remove it with `nats stream rm "):
        await NatsTarget(cell, 1).begin(STATE, Extent(0, 5_000))
    await cell.aclose()
    missing = await CellAccess.open(nats_server.settings(f"m-{token_hex(4)}"), "me")
    with pytest.raises(StoreMissing, match="if it existed before, restore it instead"):
        await missing.claim()
    await missing.aclose()
