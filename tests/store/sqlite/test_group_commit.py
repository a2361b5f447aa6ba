"""Group commit: saves that are asked for at once are one transaction, and each has its own result."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn.store.port import (
    Deleted,
    Record,
    RecordKey,
    RecordKind,
    SaveUnknown,
    StoreError,
    StoreFull,
)
from forewarn.store.sqlite import group_commit
from forewarn.store.sqlite.group_commit import BATCH_SAVES, RESULTS_AT_ONCE, GroupCommit
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import Save, SaveResult
from tests.store.contract import (
    BATCH,
    GUARD_SECONDS,
    WEB,
    entries,
)


async def test_concurrent_saves_are_one_transaction(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = count_batches(store, monkeypatch)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(64)]

    async def write(key: RecordKey) -> None:
        revision = None
        for step in range(5):
            revision = await store.save(key, f"{step}".encode(), entries(1), expected=revision)

    await asyncio.gather(*(write(key) for key in keys))
    assert batches == [64] * 5


async def test_writers_out_of_step_share_transactions(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = count_batches(store, monkeypatch)

    async def write(key: RecordKey, times: int) -> None:
        revision = None
        for step in range(times):
            revision = await store.save(key, f"{step}".encode(), entries(1), expected=revision)

    async with asyncio.TaskGroup() as group:
        group.create_task(write(WEB, 4))
        await asyncio.sleep(0)  # it asks …
        await asyncio.sleep(0)  # … and its transaction begins
        for n in range(63):
            group.create_task(write(RecordKey(RecordKind.SCOPE, f"scope-{n}"), 3))
    assert batches == [1, 64, 64, 64]


def count_batches(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    commit = store._group._commit

    def counting(saves: Sequence[Save]) -> list[SaveResult]:
        sizes.append(len(saves))
        return commit(saves)

    monkeypatch.setattr(store._group, "_commit", counting)
    return sizes


async def test_size_of_a_batch_is_limited(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = count_batches(store, monkeypatch)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(40)]
    await asyncio.gather(*(store.save(key, bytes(700_000), [], expected=None) for key in keys))
    assert batches == [6, 6, 6, 6, 6, 6, 4]


async def test_unexpected_error_reaches_every_caller_and_the_store_continues(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(store._group, "_commit", fail)
        results = await asyncio.gather(
            *(store.save(key, b"value", [], expected=None) for key in (WEB, BATCH)), return_exceptions=True
        )
    assert [type(result) for result in results] == [ZeroDivisionError, ZeroDivisionError]
    await store.save(WEB, b"value", [], expected=None)


class ScriptedCommit:
    """A commit in the thread of the caller that gives each save the next revision, or the error of its key."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.errors: dict[str, StoreError] = {}
        self.published: list[Record | Deleted] = []

    def __call__(self, saves: Sequence[Save]) -> list[SaveResult]:
        self.batches.append([save.key.id for save in saves])
        first = sum(map(len, self.batches[:-1]))
        return [self.errors.get(save.key.id) or save.at_revision(first + n) for n, save in enumerate(saves, 1)]


def a_save(id_: str, value: bytes | None = b"value") -> Save:
    return Save(RecordKey(RecordKind.SCOPE, id_), value, (), None)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


async def test_each_save_has_its_own_revision_or_error(thread: ThreadPoolExecutor) -> None:
    commit = ScriptedCommit()
    commit.errors["b"] = StoreFull(Path("/test"))
    group = GroupCommit(thread, commit, list, commit.published.append)
    saves = [a_save("a"), a_save("b"), a_save("c", None)]
    results = await asyncio.gather(*map(group.save, saves), return_exceptions=True)
    assert results == [1, commit.errors["b"], 3]
    await group.drain()
    assert commit.batches == [["a", "b", "c"]]
    assert commit.published == [Record(saves[0].key, b"value", 1), Deleted(saves[2].key, 3)]


async def test_cancelled_save_is_saved_all_the_same(thread: ThreadPoolExecutor) -> None:
    commit = ScriptedCommit()
    group = GroupCommit(thread, commit, list, commit.published.append)
    saving = asyncio.create_task(group.save(a_save("a")))
    await asyncio.sleep(0)
    saving.cancel()
    assert await group.save(a_save("b")) == 2
    assert (commit.batches, saving.cancelled()) == ([["a", "b"]], True)


async def test_number_of_saves_in_a_transaction_is_limited(thread: ThreadPoolExecutor) -> None:
    commit = ScriptedCommit()
    group = GroupCommit(thread, commit, list, commit.published.append)
    await asyncio.gather(*(group.save(a_save(f"s{n}")) for n in range(BATCH_SAVES + 1)))
    assert list(map(len, commit.batches)) == [BATCH_SAVES, 1]


async def test_results_of_a_large_batch_come_in_several_iterations_of_the_event_loop(
    thread: ThreadPoolExecutor,
) -> None:
    commit = ScriptedCommit()
    group = GroupCommit(thread, commit, list, commit.published.append)
    done: list[str] = []
    at_once: list[int] = []

    async def save(id_: str) -> None:
        await group.save(a_save(id_))
        done.append(id_)

    ids = [f"s{n}" for n in range(10 * RESULTS_AT_ONCE)]
    saves = asyncio.gather(*map(save, ids))
    while not saves.done():
        before = len(done)
        await asyncio.sleep(0)
        at_once.append(len(done) - before)
    assert (commit.batches, done) == ([ids], ids)
    assert max(at_once) <= 2 * RESULTS_AT_ONCE  # two iterations, if this loop was in between
    assert [change.key.id for change in commit.published] == ids


async def test_group_without_saves_is_drained(thread: ThreadPoolExecutor) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        await GroupCommit(thread, ScriptedCommit(), list, lambda _: None).drain()


async def test_unknown_outcome_is_settled_in_the_background_and_published_if_it_was_saved(
    thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "FIRST_PAUSE", 0.001)
    commit, saves = ScriptedCommit(), [a_save("a"), a_save("b")]
    commit.errors |= {save.key.id: SaveUnknown(Path("/test"), "disk I/O error") for save in saves}
    record, refusal = saves[0].at_revision(1), StoreFull(Path("/test"))
    answers: list[list[SaveResult] | StoreError] = [StoreFull(Path("/test")), [record, refusal]]
    settled = asyncio.Event()

    def settle() -> list[SaveResult]:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def publish(change: Record | Deleted) -> None:
        commit.published.append(change)
        settled.set()

    group = GroupCommit(thread, commit, settle, publish)
    results = await asyncio.gather(*map(group.save, saves), return_exceptions=True)
    assert [type(result) for result in results] == [SaveUnknown, SaveUnknown]
    async with asyncio.timeout(GUARD_SECONDS):
        await settled.wait()
    await group.drain()
    assert commit.published == [record]
    assert "1 were saved and 1 were not" in caplog.text
