"""Cells of the cluster store: opened for one service, and upgraded to a newer format."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.compose.cell import FormatUnknown, renew_cell, run_cell, upgrade_cell
from forewarn.compose.cell_status import check_cell, read_status
from forewarn.core.policy import EMULATOR
from forewarn.core.scope import Scope
from forewarn.files import UnsafeDirectory
from forewarn.fleet.host.registry import HostRecord
from forewarn.fleet.service import Fleet
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import Settings
from forewarn.store.nats import stream as stream_module
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.journal_index import REVERTED_FILE
from forewarn.store.nats.member import MemberRole
from forewarn.store.nats.message import FORMAT, FORMAT_HEADER
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import (
    Record,
    RecordKey,
    RecordKind,
    StoreInUse,
    StoreRestored,
    StoreTooNew,
    StoreUnavailable,
)
from tests.core.sample_scopes import scope, vm
from tests.fleet.host.clusters import quick_platform
from tests.store.contract import WEB, entries, whole_journal
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


async def test_data_directory_is_used_by_one_process(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_cell(settings, tmp_path):
        with pytest.raises(StoreInUse):
            async with run_cell(settings, tmp_path):
                pass


async def test_symbolic_link_in_place_of_any_file_is_refused_and_not_followed(
    nats_server: NatsCluster, tmp_path: Path
) -> None:
    settings = await nats_server.create_cell()
    async with run_cell(settings, tmp_path / "data") as (store, _):
        await store.save(WEB, b"value", entries(2), expected=None)
        assert len(await whole_journal(store)) == 2
        names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(names) == 5, "lock, member, and the index with its log and shared memory"
    for name in (*names, REVERTED_FILE):
        data = shutil.copytree(tmp_path / "data", tmp_path / name)
        (tmp_path / "target").write_text("of another user")
        (data / name).unlink(missing_ok=True)
        (data / name).symlink_to(tmp_path / "target")
        with pytest.raises(UnsafeDirectory, match="is a symbolic link"):
            async with run_cell(settings, data):
                raise AssertionError(f"{name} was followed")
        assert (tmp_path / "target").read_text() == "of another user"


PROBE = RecordKey(RecordKind.FLEET, "probe")
"""A record that no part of the fleet reads."""


async def stored_format(settings: NatsSettings) -> str:
    """Return the format of the record `PROBE`."""
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    message = await stream.read_last(stream.subjects.of(PROBE))
    await connection.aclose()
    assert message is not None
    return message.headers[FORMAT_HEADER]


async def read_all(store: NatsStore) -> None:
    async with store.watch() as changes:
        async for _ in changes:
            pass


async def test_format_is_switched_when_all_processes_know_it(
    nats_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade: an old process knows only the old format, and a new one saves it until it is switched."""
    settings = await nats_server.create_cell()
    old = await NatsStore.open(settings, tmp_path / "old")
    await old.announce("old", MemberRole.CONTROL)
    forgotten = await NatsStore.open(settings, tmp_path / "forgotten")  # no one has heard of it
    reading = asyncio.ensure_future(read_all(forgotten))
    monkeypatch.setattr(stream_module, "FORMAT", FORMAT + 1)
    new = await NatsStore.open(settings, tmp_path / "new")
    await new.announce("new", MemberRole.CONTROL)
    following = asyncio.ensure_future(read_all(new))
    revision = await new.save(PROBE, b"value", (), expected=None)
    assert await stored_format(settings) == str(FORMAT)
    revision = await old.save(PROBE, b"value", (), expected=revision)
    all_settings = Settings(nats=settings)
    with pytest.raises(FormatUnknown, match="process"):
        await upgrade_cell(all_settings, tmp_path / "data")
    assert (await read_status(settings)).format == FORMAT
    await old.aclose()
    report = await upgrade_cell(all_settings, tmp_path / "data")
    assert (report.switched, report.format) == (True, FORMAT + 1)
    with pytest.raises(StoreTooNew):
        await reading
    with pytest.raises(StoreTooNew):
        await forgotten.save(PROBE, b"old", (), expected=revision)
    while await stored_format(settings) == str(FORMAT):  # until the new process has heard of the switch
        revision = await new.save(PROBE, b"value", (), expected=revision)
    assert not (await upgrade_cell(all_settings, tmp_path / "data")).switched
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        await NatsStore.open(settings, tmp_path / "old")
    following.cancel()
    await new.aclose()
    await forgotten.aclose()


async def test_format_is_not_switched_while_a_host_does_not_know_it(
    nats_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No control node has to report the host: right after a take-over none does."""
    settings = await nats_server.create_cell()
    store = await NatsStore.open(settings, tmp_path / "control")
    host = RecordKey(RecordKind.HOST, "hv-0")
    old = HostRecord(term=1, process="p", holder="process 7 on hv-0", format=FORMAT)
    revision = await store.save(host, msgspec.json.encode(old), (), expected=None)
    monkeypatch.setattr(stream_module, "FORMAT", FORMAT + 1)
    all_settings = Settings(nats=settings)
    with pytest.raises(FormatUnknown, match=r"host hv-0 \(process 7 on hv-0\)"):
        await upgrade_cell(all_settings, tmp_path / "data")
    gone = HostRecord(term=2, format=FORMAT)
    await store.save(host, msgspec.json.encode(gone), (), expected=revision)
    assert (await upgrade_cell(all_settings, tmp_path / "data")).switched
    await store.aclose()


@asynccontextmanager
async def run_fleet(store: NatsStore) -> AsyncIterator[Fleet]:
    async with Fleet.run(
        store=store, platform=quick_platform(), clock=SystemClock(), policy=EMULATOR, has_duties=False
    ) as fleet:
        yield fleet


async def restore_stream(settings: NatsSettings, cell_id: str, record: Record) -> None:
    """Replace the stream by an older one of the same cell, which has only one record."""
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    await connection.call(f"STREAM.DELETE.{stream.name}")
    await stream.create(1, cell_id)
    await stream.publish(stream.subjects.of(record.key), record.value, {FORMAT_HEADER: str(FORMAT)})
    await connection.aclose()


async def test_restored_stream_gets_new_epochs_before_anything_else(nats_server: NatsCluster, tmp_path: Path) -> None:
    """Guests may have seen more than the stream knows, and VMs may have been maintained since."""
    settings = await nats_server.create_cell()
    async with run_cell(settings, tmp_path, is_shared=True) as (store, _), run_fleet(store) as fleet:
        await fleet.inventory.add_scope(scope("web", vm("web-0")), by="test")
        before = fleet.replica.scope("web")
        backup = await store.load(RecordKey(RecordKind.SCOPE, "web"))
        assert backup is not None
        await fleet.holds.set(by="ann", reason="storm")
        await fleet.holds.release(by="ann", why="calm")
        assert await whole_journal(store)
        old_id = store.cell_id
    await restore_stream(settings, old_id, backup)
    found: list[tuple[str, Scope]] = []
    hold = None
    for _ in range(2):  # nothing happens the second time
        async with run_cell(settings, tmp_path, is_shared=True) as (store, _), run_fleet(store) as fleet:
            found.append((store.cell_id, fleet.replica.scope("web")))
            hold = fleet.holds.current
    (new_id, after), again = found
    assert again == (new_id, after)
    assert new_id != old_id
    assert after.epoch != before.epoch
    assert after.incarnation > before.incarnation
    assert hold is not None
    assert hold.by == "restore"
    assert not (tmp_path / "reverted").exists()


async def test_new_epochs_begin_again_if_the_first_attempt_was_interrupted(
    nats_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await nats_server.create_cell()
    async with run_cell(settings, tmp_path, is_shared=True) as (store, _), run_fleet(store) as fleet:
        await fleet.inventory.add_scope(scope("web", vm("web-0")), by="test")
        backup = await store.load(RecordKey(RecordKind.SCOPE, "web"))
        assert backup is not None
        await fleet.holds.set(by="ann", reason="storm")
        await whole_journal(store)
        old_id = store.cell_id
    await restore_stream(settings, old_id, backup)

    async def fail(_: NatsStore) -> None:
        raise StoreUnavailable("the stream", "the process was killed")

    monkeypatch.setattr(NatsStore, "renew", fail)
    with pytest.raises(StoreUnavailable):
        async with run_cell(settings, tmp_path, is_shared=True):
            raise AssertionError("new epochs have not begun")
    monkeypatch.undo()
    async with run_cell(settings, tmp_path, is_shared=True) as (store, _):
        assert store.cell_id != old_id


async def test_cell_is_renewed_on_request_and_its_processes_start_again(
    nats_server: NatsCluster, tmp_path: Path
) -> None:
    settings = await nats_server.create_cell()
    async with run_cell(settings, tmp_path, is_shared=True) as (store, _):
        async with run_fleet(store) as fleet:
            await fleet.inventory.add_scope(scope("web", vm("web-0")), by="test")
        reading = asyncio.ensure_future(read_all(store))
        assert await renew_cell(settings) == 1
        with pytest.raises(StoreRestored):
            await reading


async def test_upgrade_repairs_a_cell_of_an_older_version(nats_server: NatsCluster, tmp_path: Path) -> None:
    """The stream of an older version has no subject for leases, and the cell has no policy."""
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    config = (await stream.read_state()).details["config"]
    config["subjects"] = [each for each in config["subjects"] if not each.startswith("O.")]
    await connection.call(f"STREAM.UPDATE.{stream.name}", config)
    await connection.aclose()
    problems = (await check_cell(settings)).problems
    assert any("subjects" in problem for problem in problems)
    assert any("forewarn cluster upgrade" in problem for problem in problems)
    report = await upgrade_cell(Settings(nats=settings), tmp_path / "data")
    assert (report.settings, report.policy) == (True, True)
    assert (await check_cell(settings)).problems == ()
    async with run_cell(settings, tmp_path / "service"):
        pass
