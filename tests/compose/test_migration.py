"""Migration between a data directory and a cell: everything is copied and compared, and the source stays as it is."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex

import pytest

from forewarn.compose.backup import DatabaseNotFound
from forewarn.compose.cell import init_cell, run_cell
from forewarn.compose.data_directory import open_store
from forewarn.compose.migration import ManualClockUsed, MigrationReport, migrate_to_cell, migrate_to_directory
from forewarn.core.base_error import BaseError
from forewarn.fleet import fleet_state
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import Settings
from forewarn.settings.types import StoreName
from forewarn.store.migration import ContentDiffers, MigrationUnfinished, SourceChanged, TargetUsed
from forewarn.store.nats import migration as nats_migration
from forewarn.store.nats.connection import NatsConnection, ResponseMissing
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import CellInUse, StoreInUse, StoreMissing
from forewarn.store.sqlite import migration as sqlite_migration
from forewarn.store.sqlite.store import SqliteStore
from tests.compose.migrated_data import KEYS, fill_directory, read_cell, read_directory
from tests.store.contract import NOON, WEB, entries
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


@pytest.fixture
def cell(nats_server: NatsCluster) -> NatsSettings:
    return nats_server.settings(f"m-{token_hex(4)}")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (nats_migration, sqlite_migration):
        monkeypatch.setattr(module, "PAGE_ITEMS", 3)


async def to_cell(directory: Path, cell: NatsSettings, *, restart: bool = False) -> MigrationReport:
    return await migrate_to_cell(directory, cell, restart=restart, on_progress=lambda *_: None)


async def to_directory(cell: NatsSettings, directory: Path, *, restart: bool = False) -> MigrationReport:
    return await migrate_to_directory(cell, directory, restart=restart, on_progress=lambda *_: None)


def read_files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith(("lock", "-shm"))}


@pytest.mark.usefixtures("small_pages")
async def test_fleet_moves_into_a_cell_and_back(cell: NatsSettings, tmp_path: Path) -> None:
    before = await fill_directory(tmp_path / "old")
    files = read_files(tmp_path / "old")
    report = await to_cell(tmp_path / "old", cell)
    assert [(each.kind, each.count) for each in report.kinds] == [
        ("campaign", 1),
        ("fleet", 1),
        ("journal", len(before.journal)),
        ("scope", 2),
        ("token", 1),
    ]
    assert not report.resumed
    assert read_files(tmp_path / "old") == files
    moved = await read_cell(cell, tmp_path / "index")
    assert (moved.records, moved.journal) == (before.records, before.journal)
    # A reader that continues at a position of the old store gets an error, not a part of the journal.
    assert moved.positions == sorted(moved.positions)
    assert before.extent.last < moved.extent.pruned < moved.positions[0]
    back = await to_directory(cell, tmp_path / "new")
    assert back.kinds == report.kinds
    assert await read_directory(tmp_path / "new") == moved
    assert (tmp_path / "new/preset").read_text() == "production\n"


async def test_both_sides_can_be_used_after_a_migration(cell: NatsSettings, tmp_path: Path) -> None:
    before = await fill_directory(tmp_path / "old")
    await to_cell(tmp_path / "old", cell)
    async with run_cell(cell, tmp_path / "member") as (running, _):
        record = await running.load(WEB)
        assert record is not None
        await running.save(WEB, b"newer", entries(1, first=99), expected=record.revision)
    await to_directory(cell, tmp_path / "new")
    after = await read_directory(tmp_path / "new")
    assert after.records == before.records | {WEB: b"newer"}
    assert after.journal == [*before.journal, (WEB, entries(1, first=99)[0])]
    store = await SqliteStore.open(tmp_path / "new")
    await store.save(WEB, None, entries(1), expected=(await store.load(WEB)).revision)  # type: ignore[union-attr]  # it exists
    assert (await store.extent()).last == after.extent.last + 1
    await store.aclose()


async def test_empty_fleet_moves(cell: NatsSettings, tmp_path: Path) -> None:
    await (await SqliteStore.open(tmp_path / "old")).aclose()
    assert (await to_cell(tmp_path / "old", cell)).kinds == ()
    assert (await to_directory(cell, tmp_path / "new")).kinds == ()
    assert (await read_directory(tmp_path / "new")).records == {}


async def test_older_schema_is_migrated_in_a_copy(cell: NatsSettings, tmp_path: Path) -> None:
    before = await fill_directory(tmp_path / "old")
    with closing(sqlite3.connect(tmp_path / "old/forewarn.db")) as connection:
        connection.execute("DELETE FROM records WHERE kind = 'fleet'")  # the last step of the schema creates it
        connection.execute("PRAGMA user_version = 3")
        connection.commit()
    files = read_files(tmp_path / "old")
    await to_cell(tmp_path / "old", cell)
    assert read_files(tmp_path / "old") == files
    moved = await read_cell(cell, tmp_path / "index")
    assert moved.journal == before.journal
    assert moved.records == {key: value for key, value in before.records.items() if key != KEYS[2]}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("is_stored", [True, False])
async def test_batch_without_an_answer_is_saved_once(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    before = await fill_directory(tmp_path / "old")
    publish = CellStream.publish_batch
    calls = 0

    async def publish_without_answer(stream: CellStream, messages: object) -> int:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            return await publish(stream, messages)  # type: ignore[arg-type]  # passed on
        if is_stored:
            await publish(stream, messages)  # type: ignore[arg-type]  # passed on
        raise ResponseMissing("no answer")

    monkeypatch.setattr(CellStream, "publish_batch", publish_without_answer)
    await to_cell(tmp_path / "old", cell)
    moved = await read_cell(cell, tmp_path / "index")
    assert (moved.records, moved.journal) == (before.records, before.journal)
    assert calls > 10


async def interrupt(migration: object, monkeypatch: pytest.MonkeyPatch, target: type, method: str, after: int) -> None:
    """Let a migration end after some calls of a method, as if it was killed there."""
    original = getattr(target, method)
    calls = 0

    async def end(self: object, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise asyncio.CancelledError
        return await original(self, *arguments)

    with monkeypatch.context() as patch, suppress(asyncio.CancelledError):
        patch.setattr(target, method, end)
        await migration  # type: ignore[misc]  # a coroutine


@pytest.mark.usefixtures("small_pages")
async def test_no_service_starts_on_an_unfinished_migration(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await fill_directory(tmp_path / "old")
    await interrupt(to_cell(tmp_path / "old", cell), monkeypatch, nats_migration.NatsTarget, "write", 2)
    on_nats = Settings(store=StoreName.NATS, nats=cell, data=tmp_path / "member")
    with pytest.raises(MigrationUnfinished):
        async with open_store(on_nats, {}):
            pass
    assert (await to_cell(tmp_path / "old", cell)).resumed
    async with open_store(on_nats, {}):
        pass
    await interrupt(to_directory(cell, tmp_path / "new"), monkeypatch, sqlite_migration.SqliteTarget, "write", 2)
    with pytest.raises(MigrationUnfinished):
        async with open_store(Settings(data=tmp_path / "new"), {}):
            pass
    assert (await to_directory(cell, tmp_path / "new")).resumed
    async with open_store(Settings(data=tmp_path / "new"), {}):
        pass
    assert (await read_directory(tmp_path / "new")).records == before.records


@pytest.mark.usefixtures("small_pages")
async def test_changed_source_needs_a_restart(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_directory(tmp_path / "old")
    await interrupt(to_cell(tmp_path / "old", cell), monkeypatch, nats_migration.NatsTarget, "write", 4)
    store = await SqliteStore.open(tmp_path / "old")
    await store.save(KEYS[4]._replace(id="t-2"), b"new", (), expected=None)
    await store.aclose()
    with pytest.raises(SourceChanged):
        await to_cell(tmp_path / "old", cell)
    await to_cell(tmp_path / "old", cell, restart=True)
    expected = await read_directory(tmp_path / "old")
    moved = await read_cell(cell, tmp_path / "index")
    assert (moved.records, moved.journal) == (expected.records, expected.journal)
    await interrupt(to_directory(cell, tmp_path / "new"), monkeypatch, sqlite_migration.SqliteTarget, "write", 2)
    async with run_cell(cell, tmp_path / "member") as (running, _):
        await running.save(WEB._replace(id="other"), b"", (), expected=None)
    with pytest.raises(SourceChanged):
        await to_directory(cell, tmp_path / "new")
    await to_directory(cell, tmp_path / "new", restart=True)
    assert (await read_directory(tmp_path / "new")).journal == expected.journal


async def test_wrong_copy_is_never_released(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_directory(tmp_path / "old")
    lines = nats_migration.NatsTarget._lines
    with monkeypatch.context() as patch:
        patch.setattr(
            nats_migration.NatsTarget, "_lines", lambda self, rows, change: list(lines(self, rows, change))[:-1]
        )
        with pytest.raises(ContentDiffers, match="journal"):
            await to_cell(tmp_path / "old", cell)
    with pytest.raises(MigrationUnfinished):
        async with open_store(Settings(store=StoreName.NATS, nats=cell, data=tmp_path / "member"), {}):
            pass


async def test_content_of_others_is_never_replaced(cell: NatsSettings, tmp_path: Path) -> None:
    await fill_directory(tmp_path / "old")
    await to_cell(tmp_path / "old", cell)
    await fill_directory(tmp_path / "used", rounds=5)
    for restart in (False, True):
        with pytest.raises(TargetUsed):
            await to_cell(tmp_path / "used", cell, restart=restart)
        with pytest.raises(TargetUsed):
            await to_directory(cell, tmp_path / "used", restart=restart)


async def test_complete_migration_can_be_repeated(cell: NatsSettings, tmp_path: Path) -> None:
    await fill_directory(tmp_path / "old")
    first = await to_cell(tmp_path / "old", cell)
    second = await to_cell(tmp_path / "old", cell)
    assert (second.resumed, second.kinds) == (True, first.kinds)
    back = [await to_directory(cell, tmp_path / "new") for _ in range(2)]
    assert [(report.resumed, report.kinds) for report in back] == [(False, first.kinds), (True, first.kinds)]


async def test_cell_of_cluster_init_is_refused(cell: NatsSettings, tmp_path: Path) -> None:
    await fill_directory(tmp_path / "old")
    await init_cell(cell)
    with pytest.raises(TargetUsed):
        await to_cell(tmp_path / "old", cell)


async def test_running_services_are_refused(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_directory(tmp_path / "old")
    store = await SqliteStore.open(tmp_path / "old")
    with pytest.raises(StoreInUse):
        await to_cell(tmp_path / "old", cell)
    await store.aclose()
    await to_cell(tmp_path / "old", cell)
    with monkeypatch.context() as patch:
        patch.setattr(nats_migration, "CLAIM_SECONDS", 0.1)
        patch.setattr(nats_migration, "MEMBER_SECONDS", -3.0)  # it waits for no other process to end
        async with run_cell(cell, tmp_path / "member"):
            with pytest.raises(CellInUse):
                await to_directory(cell, tmp_path / "new")
    await to_directory(cell, tmp_path / "new")


async def test_manual_clock_and_missing_sources_are_refused(cell: NatsSettings, tmp_path: Path) -> None:
    with pytest.raises(DatabaseNotFound):
        await to_cell(tmp_path / "old", cell)
    with pytest.raises(StoreMissing):
        await to_directory(cell, tmp_path / "new")
    store = await SqliteStore.open(tmp_path / "old")
    state = fleet_state.FleetState(clock_at=NOON)
    await store.save(fleet_state.FLEET_STATE, fleet_state.encode(state), (), expected=None)
    await store.aclose()
    with pytest.raises(ManualClockUsed):
        await to_cell(tmp_path / "old", cell)


async def test_emulator_is_reported(cell: NatsSettings, tmp_path: Path) -> None:
    await fill_directory(tmp_path / "old")
    (tmp_path / "old/preset").write_text("emulator\n")
    assert (await to_cell(tmp_path / "old", cell)).emulator


async def test_lost_connection_is_an_error_that_says_so(
    cell: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_directory(tmp_path / "old")

    async def request(*_: object, **__: object) -> object:
        raise ResponseMissing("no answer")

    monkeypatch.setattr(NatsConnection, "request", request)
    with pytest.raises(BaseError, match="check the NATS servers"):
        await to_cell(tmp_path / "old", cell)
