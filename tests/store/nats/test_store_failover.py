"""The NATS store on three servers: nothing that was acknowledged is lost, and nothing is refused that happened."""

import asyncio
import random
import signal
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import save_queue
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import (
    JournalQuery,
    Record,
    RecordKey,
    RecordKind,
    Retention,
    RevisionConflict,
    SaveUnknown,
    StoreUnavailable,
)
from tests.store.contract import WEB, entries, entry, read_items, read_snapshot, whole_journal
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process

GUARD_SECONDS = 120


@pytest.fixture
def long_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let saves outlast an election on a busy machine, which may take several rounds."""
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", GUARD_SECONDS / 2)


async def load(store: NatsStore, key: RecordKey) -> Record | None:
    """Load a record, also if the servers have no leader for a while."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            with suppress(StoreUnavailable):
                return await store.load(key)
            await asyncio.sleep(0.05)


class WriterLog:
    """Writers that each count up a record of their own, one journal line per step, and what became of each step."""

    def __init__(self, store: NatsStore, count: int) -> None:
        self.store = store
        self.keys = [RecordKey(RecordKind.SCOPE, f"writer-{n}") for n in range(count)]
        self.acknowledged: dict[RecordKey, dict[int, int]] = defaultdict(dict)
        self.unknown: set[tuple[RecordKey, int]] = set()
        self.is_over = False

    async def write(self, key: RecordKey) -> None:
        """Save one step after the other until `is_over`; go on from what is stored after an unknown outcome."""
        step, revision = 0, None
        while not self.is_over:
            step += 1
            try:
                line = entry(step, why=f"{key.id} {step}")
                revision = await self.store.save(key, str(step).encode(), [line], expected=revision)
            except SaveUnknown:
                self.unknown.add((key, step))
                step, revision = await self._newest(key)
            except StoreUnavailable:
                step -= 1
            else:
                self.acknowledged[key][step] = revision

    async def _newest(self, key: RecordKey) -> tuple[int, int | None]:
        record = await load(self.store, key)
        return (0, None) if record is None else (int(record.value), record.revision)

    async def progress(self, saves: int = 5) -> None:
        """Return when every writer has saved more steps."""
        targets = {key: len(self.acknowledged[key]) + saves for key in self.keys}
        async with asyncio.timeout(GUARD_SECONDS):
            while any(len(self.acknowledged[key]) < target for key, target in targets.items()):  # noqa: ASYNC110 - simple
                await asyncio.sleep(0.02)  # the writers run meanwhile

    async def check(self, store: NatsStore) -> None:
        """Check that each acknowledged step is in the journal once, and that each journal line has its record."""
        lines = Counter(row.entry.why for row in await whole_journal(store))
        assert [why for why, count in lines.items() if count > 1] == []
        for key in self.keys:
            steps = self.acknowledged[key]
            assert [step for step in steps if f"{key.id} {step}" not in lines] == []
            assert sorted(steps.values()) == list(steps.values())
            record = await load(store, key)
            assert record is not None
            last = int(record.value)
            assert last >= max(steps)
            assert {f"{key.id} {step}" for step in range(1, last + 1)} == {
                why for why in lines if why.startswith(f"{key.id} ")
            }


async def test_killed_leader_loses_nothing_and_leaves_no_part_of_a_save(
    nats_cluster: NatsCluster, tmp_path: Path, long_patience: None
) -> None:
    settings = await nats_cluster.create_cell()
    store = await NatsStore.open(settings, tmp_path / "one")
    log = WriterLog(store, 8)
    async with asyncio.timeout(GUARD_SECONDS), store.watch() as changes, asyncio.TaskGroup() as tasks:
        await read_snapshot(changes)
        for key in log.keys:
            tasks.create_task(log.write(key))
        await log.progress()
        leader = await nats_cluster.leader_of(settings)
        leader.kill()
        await log.progress()
        nats_cluster.start(leader)
        await log.progress()
        log.is_over = True
    await log.check(store)
    assert log.unknown == set()  # a save outlasts an election
    await store.aclose()
    other = await NatsStore.open(settings, tmp_path / "two")
    await log.check(other)
    await other.aclose()


async def test_stopped_leader_leaves_each_save_with_its_true_outcome(
    nats_cluster: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that lands late is acknowledged, or its outcome is unknown; it is not refused."""
    settings = await nats_cluster.create_cell()
    store = await NatsStore.open(settings, tmp_path)
    monkeypatch.setattr("forewarn.store.nats.connection.ANSWER_SECONDS", 0.3)
    log = WriterLog(store, 8)
    async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
        for key in log.keys:
            tasks.create_task(log.write(key))
        for _ in range(2):
            await log.progress()
            leader = await nats_cluster.leader_of(settings)
            leader.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1)  # the fault itself
            leader.send_signal(signal.SIGCONT)
        await log.progress()
        log.is_over = True
    monkeypatch.undo()
    await log.check(store)
    await store.aclose()


async def test_without_a_majority_saves_are_refused_or_unknown_and_later_accepted(
    nats_cluster: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await nats_cluster.create_cell()
    store = await NatsStore.open(settings, tmp_path)
    revision = await store.save(WEB, b"one", entries(1), expected=None)
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 1.0)
    assert len(await store.journal(JournalQuery())) == 1
    for server in nats_cluster.servers[1:]:
        server.kill()
    with pytest.raises((StoreUnavailable, SaveUnknown)):
        await store.save(WEB, b"two", entries(1, first=2), expected=revision)
    assert len(await store.journal(JournalQuery())) >= 1  # from the index, without any server
    for server in nats_cluster.servers[1:]:
        nats_cluster.start(server)
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            try:
                record = await store.load(WEB)
                assert record is not None
                await store.save(WEB, b"three", entries(1, first=3), expected=record.revision)
                break
            except (StoreUnavailable, SaveUnknown, RevisionConflict):
                await asyncio.sleep(0.05)
    found = await load(store, WEB)
    assert found is not None
    assert found.value == b"three"
    await store.aclose()


async def test_watch_of_another_process_goes_on_after_the_leader_was_killed(
    nats_cluster: NatsCluster, tmp_path: Path, long_patience: None
) -> None:
    settings = await nats_cluster.create_cell()
    writer = await NatsStore.open(settings, tmp_path / "writer")
    reader = await NatsStore.open(settings, tmp_path / "reader")
    revision = await writer.save(WEB, b"0", [], expected=None)
    async with reader.watch() as changes, asyncio.timeout(GUARD_SECONDS):
        assert await read_snapshot(changes) == [Record(WEB, b"0", revision)]
        leader = await nats_cluster.leader_of(settings)
        leader.kill()
        revision = await writer.save(WEB, b"1", entries(1), expected=revision)
        assert await read_items(changes, 1) == [Record(WEB, b"1", revision)]
        nats_cluster.start(leader)
        revision = await writer.save(WEB, b"2", entries(1, first=2), expected=revision)
        assert await read_items(changes, 1) == [Record(WEB, b"2", revision)]
        assert [row.entry.n for row in await reader.journal(JournalQuery())] == [1, 2]
    await reader.aclose()
    await writer.aclose()


@pytest.mark.long
async def test_purge_under_load_removes_only_old_lines(nats_cluster: NatsCluster, tmp_path: Path) -> None:
    """One process removes lines, again and again, while another one saves."""
    settings = await nats_cluster.create_cell()
    writer, pruner = [await NatsStore.open(settings, tmp_path / str(n)) for n in range(2)]
    log = WriterLog(writer, 6)
    kept = Retention(age=None, rows=300)
    async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
        for key in log.keys:
            tasks.create_task(log.write(key))
        removed = 0
        while removed < 5_000:
            await log.progress(100)
            removed += await pruner.prune(kept, now=datetime.now(UTC))
        log.is_over = True
    assert log.unknown == set()
    while await pruner.prune(kept, now=datetime.now(UTC)):  # one batch at a time
        pass
    for store in (pruner, writer):
        async with asyncio.timeout(GUARD_SECONDS):
            while len(rows := await whole_journal(store)) != kept.rows:  # noqa: ASYNC110 - simple
                await asyncio.sleep(0.05)  # the other store hears of the removal a little later
        last = Counter({key.id: max(steps) for key, steps in log.acknowledged.items()})
        for key in log.keys:
            steps = [int(str(row.entry.why).split()[1]) for row in rows if row.key == key]
            assert steps == list(range(last[key.id] - len(steps) + 1, last[key.id] + 1))  # the newest, without gaps
        await store.aclose()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
async def test_random_faults_under_two_processes(nats_cluster: NatsCluster, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    settings = await nats_cluster.create_cell()
    stores = [await NatsStore.open(settings, tmp_path / str(n)) for n in range(2)]
    logs = [WriterLog(store, 6) for store in stores]
    logs[1].keys = [RecordKey(key.kind, f"second-{key.id}") for key in logs[1].keys]
    async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
        for log in logs:
            for key in log.keys:
                tasks.create_task(log.write(key))
        for _ in range(4):
            await asyncio.gather(*(log.progress() for log in logs))
            await _inject_fault(nats_cluster, settings, chance)
        await asyncio.gather(*(log.progress() for log in logs))
        for log in logs:
            log.is_over = True
    for log in logs:
        for store in stores:
            await log.check(store)
    for store in stores:
        await store.aclose()


async def _inject_fault(cluster: NatsCluster, settings: NatsSettings, chance: random.Random) -> None:
    server = await cluster.leader_of(settings) if chance.random() < 0.6 else chance.choice(cluster.servers)
    if chance.random() < 0.5:
        server.kill()
        cluster.start(server)
    else:
        server.send_signal(signal.SIGSTOP)
        await asyncio.sleep(chance.choice((0.5, 1.5, 4.0)))  # the fault itself
        server.send_signal(signal.SIGCONT)
