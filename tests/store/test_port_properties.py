"""Random histories: every store does what a dictionary and a list would do."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.memory import MemoryStore
from forewarn.store.port import (
    Deleted,
    GuardConflict,
    JournalQuery,
    Record,
    RecordKey,
    RecordKind,
    Retention,
    RevisionConflict,
    Store,
    WatchItem,
)
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import NOON, OpenStore, entry, read_snapshot, read_until, whole_journal
from tests.support.examples import examples

T = TypeVar("T")

KEYS = [
    RecordKey(RecordKind.SCOPE, "web"),
    RecordKey(RecordKind.SCOPE, "batch"),
    RecordKey(RecordKind.CAMPAIGN, "web"),
    RecordKey(RecordKind.LEASE, "clock"),
]
DIDS = (EntryKind.SCHEDULED, EntryKind.STARTED, EntryKind.HELD)
AUTHORS = ("operator", "clock", "vm:web-0")
EVENTS = ("E1", "E2")
VMS = ("web-0", "web-1", "Web-10")
keys = st.sampled_from(KEYS)
values = st.binary(max_size=20) | st.integers(4_000, 9_000).map(bytes)
moments = st.integers(-120, 120).map(lambda minutes: NOON + timedelta(minutes=minutes))
lines = st.builds(
    entry,
    st.just(1),
    at=moments,
    did=st.sampled_from(DIDS),
    by=st.sampled_from(AUTHORS),
    event=st.sampled_from(EVENTS) | st.none(),
    vms=st.lists(st.sampled_from(VMS), max_size=2, unique=True).map(tuple),
)
journals = st.lists(lines, max_size=4)
queries = st.builds(
    JournalQuery,
    key=st.none() | keys,
    event=st.none() | st.sampled_from(EVENTS),
    kinds=st.lists(st.sampled_from(DIDS), max_size=2, unique=True).map(tuple),
    by=st.none() | st.sampled_from(AUTHORS),
    since=st.none() | moments,
    until=st.none() | moments,
    newest_first=st.booleans(),
    limit=st.integers(1, 5),
)


class StoreStateMachine(RuleBasedStateMachine):
    """One store beside its model, and a watcher that is read only now and then."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp(prefix="forewarn-"))
        self.records: dict[RecordKey, Record] = {}
        self.used: dict[RecordKey, list[int]] = {key: [0] for key in KEYS}
        self.rows: list[tuple[RecordKey, Entry]] = []
        self.saved_lines = 0
        self.seen: dict[RecordKey, bytes] = {}
        self.unread: dict[RecordKey, int] = {}

    def open_store(self) -> OpenStore:
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.run(self.open())

    async def open(self) -> None:
        self.store: Store = await self.open_store()()
        self.watching = AsyncExitStack()
        self.changes: AsyncIterator[WatchItem] = await self.watching.enter_async_context(self.store.watch())
        snapshot = await read_snapshot(self.changes)
        self.seen = {item.key: item.value for item in snapshot if isinstance(item, Record)}
        self.unread = {}

    @rule(key=keys, value=values, drafts=journals)
    def save(self, key: RecordKey, value: bytes, drafts: list[Entry]) -> None:
        current = self.records.get(key)
        written = self.entries(key, drafts)
        revision = self.run(
            self.store.save(key, value, written, expected=current.revision if current else None),
        )
        self.records[key] = Record(key, value, revision)
        self.note(key, revision, written)

    @precondition(lambda self: self.records)
    @rule(data=st.data(), drafts=journals)
    def delete(self, data: st.DataObject, drafts: list[Entry]) -> None:
        key = data.draw(st.sampled_from(sorted(self.records)))
        written = self.entries(key, drafts)
        revision = self.run(self.store.save(key, None, written, expected=self.records.pop(key).revision))
        self.note(key, revision, written)

    @rule(key=keys, value=values | st.none(), data=st.data())
    def save_at_a_stale_revision(self, key: RecordKey, value: bytes | None, data: st.DataObject) -> None:
        actual = self.records[key].revision if key in self.records else None
        stale: list[int | None] = [revision for revision in self.used[key] if revision != actual]
        if value is not None and actual is not None:
            stale.append(None)
        expected = data.draw(st.sampled_from(stale))
        with pytest.raises(RevisionConflict) as conflict:
            self.run(self.store.save(key, value, self.entries(key, [entry(1)]), expected=expected))
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (key, expected, actual)

    @rule(key=keys, value=values, drafts=journals, data=st.data())
    def save_with_guards(self, key: RecordKey, value: bytes, drafts: list[Entry], data: st.DataObject) -> None:
        others = [other for other in KEYS if other != key]
        named = data.draw(st.lists(st.sampled_from(others), min_size=1, unique=True))
        guards = {guard: data.draw(st.sampled_from([None, *self.used[guard]])) for guard in named}
        actual = {guard: self.records[guard].revision if guard in self.records else None for guard in guards}
        current = self.records.get(key)
        written = self.entries(key, drafts)
        save = self.store.save(key, value, written, expected=current.revision if current else None, guards=guards)
        if guards == actual:
            revision = self.run(save)
            self.records[key] = Record(key, value, revision)
            self.note(key, revision, written)
        else:
            with pytest.raises(GuardConflict) as conflict:
                self.run(save)
            guard = conflict.value.key
            assert (conflict.value.expected, conflict.value.actual) == (guards[guard], actual[guard])
            assert guards[guard] != actual[guard]

    @rule(drafts=st.lists(lines, min_size=2, max_size=4))
    def save_all_at_once(self, drafts: list[Entry]) -> None:
        async def save_all() -> list[int]:
            return await asyncio.gather(
                *(
                    self.store.save(key, b"together", written[key], expected=revision)
                    for key, revision in expected.items()
                )
            )

        expected = {key: self.records[key].revision if key in self.records else None for key in KEYS}
        written = {key: self.entries(key, drafts) for key in KEYS}
        for key, revision in zip(KEYS, self.run(save_all()), strict=True):
            self.records[key] = Record(key, b"together", revision)
            self.note(key, revision, written[key])

    @rule()
    def read_the_watch(self) -> None:
        for item in self.run(read_until(self.changes, self.unread)):
            match item:
                case Record(key, value, _):
                    self.seen[key] = value
                case Deleted(key, _):
                    self.seen.pop(key, None)
        self.unread = {}
        assert self.seen == {key: record.value for key, record in self.records.items()}

    @rule(query=queries, vm=st.none() | st.sampled_from((*VMS, "WEB-0", "other")))
    def query_the_journal(self, query: JournalQuery, vm: str | None) -> None:
        if query.key is not None:
            query = msgspec.structs.replace(query, vm=vm)
        found = self.run(whole_journal(self.store, query))
        expected = [(where, each) for where, each in self.rows if _fits(query, where, each)]
        assert [(row.key, row.entry) for row in found] == (expected[::-1] if query.newest_first else expected)

    @rule(age=st.none() | st.integers(0, 240), rows=st.none() | st.integers(0, 20), now=moments)
    def prune(self, age: int | None, rows: int | None, now: datetime) -> None:
        retention = Retention(age=None if age is None else timedelta(minutes=age), rows=rows)
        kept = [row for row in self.rows if age is None or row[1].at >= now - timedelta(minutes=age)]
        if rows is not None:
            kept = kept[max(0, len(kept) - rows) :]
        assert self.run(self.store.prune(retention, now=now)) == len(self.rows) - len(kept)
        self.rows = kept

    @precondition(lambda self: self.durable)
    @rule()
    def restart(self) -> None:
        self.run(self.close())
        self.run(self.open())
        assert self.seen == {key: record.value for key, record in self.records.items()}

    @invariant()
    def records_are_as_saved(self) -> None:
        if hasattr(self, "store"):
            assert {key: self.run(self.store.load(key)) for key in KEYS} == {key: self.records.get(key) for key in KEYS}

    @invariant()
    def journal_is_as_saved(self) -> None:
        if hasattr(self, "store"):
            found = self.run(self.store.journal(JournalQuery()))
            assert [(row.key, row.entry) for row in found] == self.rows
            positions = [row.position for row in found]
            assert positions == sorted(set(positions))
            pruned, last = self.run(self.store.extent())
            assert last == self.saved_lines
            assert [position for position in positions if position > pruned] == list(range(pruned + 1, last + 1))
            assert pruned == 0 or pruned not in positions

    def entries(self, key: RecordKey, drafts: list[Entry]) -> list[Entry]:
        first = 1 + sum(where == key for where, _ in self.rows)
        return [msgspec.structs.replace(draft, n=n) for n, draft in enumerate(drafts, first)]

    def note(self, key: RecordKey, revision: int, written: list[Entry]) -> None:
        assert revision > max(self.used[key])
        self.used[key].append(revision)
        self.rows += [(key, each) for each in written]
        self.saved_lines += len(written)
        self.unread[key] = revision

    async def close(self) -> None:
        await self.watching.aclose()
        await self.store.aclose()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.directory)


def _fits(query: JournalQuery, key: RecordKey, line: Entry) -> bool:
    named = [name.lower() for name in line.vms]
    return (
        query.key in (None, key)
        and query.event in (None, line.event)
        and (query.vm is None or not named or query.vm.lower() in named)
        and (not query.kinds or line.kind in query.kinds)
        and query.by in (None, line.by)
        and (query.since is None or line.at >= query.since)
        and (query.until is None or line.at < query.until)
    )


class MemoryStateMachine(StoreStateMachine):
    def open_store(self) -> OpenStore:
        async def open_empty() -> MemoryStore:
            return MemoryStore()

        return open_empty


class SqliteStateMachine(StoreStateMachine):
    durable = True

    def open_store(self) -> OpenStore:
        return lambda: SqliteStore.open(self.directory)


@pytest.mark.parametrize("history", [MemoryStateMachine, SqliteStateMachine], ids=["memory", "sqlite"])
def test_store_matches_its_model(history: type[StoreStateMachine]) -> None:
    run_state_machine_as_test(
        history,
        settings=settings(
            max_examples=examples(40), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
