"""Migration from and into SQLite: pages have exact cursors, and a page that is repeated is saved once."""

from pathlib import Path

import pytest

from forewarn.files import UnsafeDirectory
from forewarn.store.migration import MIGRATION, MigrationCursor, MigrationPage, MigrationState, TargetUsed
from forewarn.store.port import MAX_NUMBER, Extent, RecordKind, StoreFailed, StoreInUse
from forewarn.store.sqlite import migration
from forewarn.store.sqlite.migration import SqliteSource, SqliteTarget
from forewarn.store.sqlite.store import SqliteStore
from tests.compose.migrated_data import fill_directory, read_directory

STATE = MigrationState(source="other", source_state="1", change="c")
START = MigrationCursor()


async def read_pages(source: SqliteSource, after: MigrationCursor = START) -> list[MigrationPage]:
    return [page async for page in source.pages(after)]


async def test_source_continues_after_any_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "PAGE_ITEMS", 2)
    await fill_directory(tmp_path)
    source = SqliteSource(tmp_path)
    pages = await read_pages(source)
    assert len(pages) > 10
    assert all(len(page.rows) + len(page.records) <= 2 for page in pages)
    for number, page in enumerate(pages):
        assert await read_pages(source, page.cursor) == pages[number + 1 :]
    assert pages[-1].cursor.records == MAX_NUMBER
    source.close()


async def test_source_is_locked_and_refuses_an_incomplete_restore(tmp_path: Path) -> None:
    await fill_directory(tmp_path)
    source = SqliteSource(tmp_path)
    with pytest.raises(StoreInUse):
        await SqliteStore.open(tmp_path)
    source.close()
    (tmp_path / "restore.ready-1").mkdir()
    with pytest.raises(StoreFailed, match="restore"):
        SqliteSource(tmp_path)


@pytest.mark.parametrize("name", ["forewarn.db", "forewarn.db-wal", "forewarn.lock"])
async def test_symbolic_link_in_the_source_is_refused_and_not_followed(tmp_path: Path, name: str) -> None:
    await fill_directory(tmp_path / "data")
    place = tmp_path / "data" / name
    place.touch()
    place.rename(tmp_path / "target")
    place.symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeDirectory, match="is a symbolic link"):
        SqliteSource(tmp_path / "data")


async def test_repeated_page_is_saved_once(tmp_path: Path) -> None:
    before = await fill_directory(tmp_path / "old")
    source = SqliteSource(tmp_path / "old")
    target = SqliteTarget(tmp_path / "new")
    assert await target.begin(STATE, before.extent) == STATE
    pages = await read_pages(source)
    for page in (*pages, *pages):  # as after a kill between a page and its cursor
        await target.write(page)
    await target.finish()
    target.close()
    source.close()
    assert await read_directory(tmp_path / "new") == before


async def test_unfinished_target_continues_or_is_cleared(tmp_path: Path) -> None:
    before = await fill_directory(tmp_path / "old")
    source = SqliteSource(tmp_path / "old")
    first, *_ = await read_pages(source)
    source.close()
    target = SqliteTarget(tmp_path / "new")
    await target.clear()  # of nothing
    await target.begin(STATE, before.extent)
    await target.write(first)
    target.close()
    again = SqliteTarget(tmp_path / "new")
    found = await again.begin(MigrationState(source="x", source_state="2"), before.extent)
    assert (found.source, found.cursor) == ("other", first.cursor)
    again.close()
    cleared = SqliteTarget(tmp_path / "new")
    await cleared.clear()
    assert (await cleared.begin(STATE, Extent(0, 0))).cursor == MigrationCursor()
    assert [page.rows for page in [page async for page in cleared.pages()]] == [()]
    cleared.close()
    store = await SqliteStore.open(tmp_path / "new")
    assert (MIGRATION.kind, (await store.load(MIGRATION)) is not None) == (RecordKind.FLEET, True)
    await store.aclose()


async def test_other_content_is_refused(tmp_path: Path) -> None:
    await fill_directory(tmp_path)
    target = SqliteTarget(tmp_path)
    with pytest.raises(TargetUsed):
        await target.begin(STATE, Extent(0, 0))
    with pytest.raises(TargetUsed):
        await target.clear()
    target.close()
