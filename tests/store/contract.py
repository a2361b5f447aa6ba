"""Contract tests for stores: the guarantees of `forewarn.store.port`, to be run against any store.

Subclass a contract in a test module (pytest-asyncio in auto mode) that has a fixture `open_store`: a function that
opens an empty store, and, for a durable one, opens the same data again after the store has been closed.

    class TestMyStore(DurableStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore.open(tmp_path)
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.store.port import (
    MAX_GUARDS,
    PRUNE_BATCH,
    Deleted,
    Extent,
    GuardConflict,
    JournalQuery,
    JournalRow,
    Reached,
    Record,
    RecordKey,
    RecordKind,
    RecordTooLarge,
    Retention,
    RevisionConflict,
    SnapshotEnd,
    Store,
    StoreClosed,
    WatchItem,
)

OpenStore = Callable[[], Awaitable[Store]]

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WEB = RecordKey(RecordKind.SCOPE, "web")
BATCH = RecordKey(RecordKind.SCOPE, "batch")
HOLD = RecordKey(RecordKind.FLEET, "hold")
LEASE = RecordKey(RecordKind.LEASE, "clock")
GUARD_SECONDS = 60
"""Ends a test that hangs; nothing is measured with it."""


def entry(
    n: int,
    *,
    at: datetime = NOON,
    did: EntryKind = EntryKind.SCHEDULED,
    by: str = "operator",
    why: str = "",
    event: str | None = None,
    vms: tuple[str, ...] = (),
) -> Entry:
    """Return a plausible journal entry."""
    return Entry(n=n, at=at, kind=did, by=by, why=why, event=event, vms=vms)


def entries(count: int, *, at: datetime = NOON, first: int = 1) -> list[Entry]:
    """Return consecutive entries of one moment."""
    return [entry(n, at=at) for n in range(first, first + count)]


async def whole_journal(store: Store, query: JournalQuery | None = None) -> list[JournalRow]:
    """Read all pages of a query."""
    query = query or JournalQuery()
    rows: list[JournalRow] = []
    while page := await store.journal(query):
        rows += page
        edge = {"before": page[-1].position} if query.newest_first else {"after": page[-1].position}
        query = msgspec.structs.replace(query, **edge)
    return rows


async def find_rows(store: Store, query: JournalQuery) -> list[tuple[RecordKey, int]]:
    """Return the lines that a query finds, each by its record and its number there."""
    return [(row.key, row.entry.n) for row in await store.journal(query)]


async def prune_all(store: Store, retention: Retention) -> None:
    """Prune until nothing is left to do."""
    for _ in range(10):
        if not await store.prune(retention, now=NOON):
            return
    raise AssertionError("pruning a few rows does not come to an end")


async def read_items(changes: AsyncIterator[WatchItem], count: int) -> list[WatchItem]:
    """Return the next items of a watch, without those that only tell how far it is."""
    items: list[WatchItem] = []
    async with asyncio.timeout(GUARD_SECONDS):
        while len(items) < count:
            item = await anext(changes)
            if not isinstance(item, Reached):
                items.append(item)
    return items


async def read_rest(changes: AsyncIterator[WatchItem]) -> list[WatchItem]:
    """Return all items of a watch until it ends, without those that only tell how far it is."""
    return [item async for item in changes if not isinstance(item, Reached)]


async def read_snapshot(changes: AsyncIterator[WatchItem]) -> list[WatchItem]:
    """Return what a watch gives before the end of the snapshot."""
    items: list[WatchItem] = []
    async with asyncio.timeout(GUARD_SECONDS):
        async for item in changes:
            if item == SnapshotEnd():
                return items
            if not isinstance(item, Reached):
                items.append(item)
    raise AssertionError("the watch ended before its snapshot")


async def read_until(changes: AsyncIterator[WatchItem], newest: dict[RecordKey, int]) -> list[Record | Deleted]:
    """Return changes up to the one that brings the last of the awaited revisions."""
    items: list[Record | Deleted] = []
    seen: dict[RecordKey, int] = {}
    async with asyncio.timeout(GUARD_SECONDS):
        while any(seen.get(key, 0) < revision for key, revision in newest.items()):
            item = await anext(changes)
            assert not isinstance(item, SnapshotEnd)
            if isinstance(item, Reached):
                continue
            items.append(item)
            seen[item.key] = item.revision
    return items


def assert_never_older_after_newer(items: Sequence[WatchItem]) -> None:
    """Check that the revisions of each key only grow."""
    seen: dict[RecordKey, int] = {}
    for item in items:
        if not isinstance(item, SnapshotEnd | Reached):
            assert item.revision > seen.get(item.key, 0), f"{item.key}: {item.revision} after {seen[item.key]}"
            seen[item.key] = item.revision


class StoreContract:
    """What every store promises."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[Store]:
        store = await open_store()
        yield store
        await store.aclose()

    async def test_watch_tells_how_far_it_has_reached(self, store: Store) -> None:
        async def read_reached(revision: int) -> list[WatchItem]:
            items: list[WatchItem] = []
            async with asyncio.timeout(GUARD_SECONDS):
                async for item in changes:
                    if isinstance(item, Reached) and item.revision >= revision:
                        break
                    items.append(item)
            return [item for item in items if not isinstance(item, Reached)]

        before = await store.save(WEB, b"1", [], expected=None)
        async with store.watch() as changes:
            assert await read_reached(before) == [Record(WEB, b"1", before), SnapshotEnd()]
            other = await store.save(BATCH, b"2", [], expected=None)
            newest = await store.save(WEB, b"3", [], expected=before)
            assert await read_reached(newest) == [Record(BATCH, b"2", other), Record(WEB, b"3", newest)]
        assert before < other < newest

    async def test_saved_record_is_loaded(self, store: Store) -> None:
        revision = await store.save(WEB, b"one", [], expected=None)
        assert await store.load(WEB) == Record(WEB, b"one", revision)

    async def test_missing_record_loads_as_none(self, store: Store) -> None:
        assert await store.load(WEB) is None

    async def test_replaced_record_has_the_new_value_and_a_higher_revision(self, store: Store) -> None:
        first = await store.save(WEB, b"one", [], expected=None)
        second = await store.save(WEB, b"two", [], expected=first)
        assert second > first
        assert await store.load(WEB) == Record(WEB, b"two", second)

    async def test_deleted_record_is_gone(self, store: Store) -> None:
        first = await store.save(WEB, b"one", [], expected=None)
        second = await store.save(WEB, None, [], expected=first)
        assert second > first
        assert await store.load(WEB) is None

    @pytest.mark.parametrize("record_id", ["", "a/b", "é-✓-\U0001f4a1", "%_'\"\\", "x" * 500])
    async def test_ids_are_stored_unchanged(self, store: Store, record_id: str) -> None:
        key = RecordKey(RecordKind.SCOPE, record_id)
        revision = await store.save(key, b"value", entries(1), expected=None)
        assert await store.load(key) == Record(key, b"value", revision)
        assert [row.key for row in await store.journal(JournalQuery(key=key))] == [key]

    async def test_one_id_may_exist_once_in_every_kind(self, store: Store) -> None:
        keys = [RecordKey(kind, "same") for kind in RecordKind]
        revisions = {key: await store.save(key, str(key).encode(), [], expected=None) for key in keys}
        assert [await store.load(key) for key in keys] == [
            Record(key, str(key).encode(), revisions[key]) for key in keys
        ]

    async def test_empty_value_is_a_value(self, store: Store) -> None:
        revision = await store.save(WEB, b"", [], expected=None)
        assert await store.load(WEB) == Record(WEB, b"", revision)

    async def test_creating_an_existing_record_conflicts(self, store: Store) -> None:
        revision = await store.save(WEB, b"one", [], expected=None)
        with pytest.raises(RevisionConflict) as conflict:
            await store.save(WEB, b"two", [], expected=None)
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (WEB, None, revision)

    async def test_stale_revision_conflicts(self, store: Store) -> None:
        first = await store.save(WEB, b"one", [], expected=None)
        second = await store.save(WEB, b"two", [], expected=first)
        for value in (b"three", None):
            with pytest.raises(RevisionConflict) as conflict:
                await store.save(WEB, value, [], expected=first)
            assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (WEB, first, second)

    async def test_missing_record_has_no_revision(self, store: Store) -> None:
        for value in (b"one", None):
            with pytest.raises(RevisionConflict) as conflict:
                await store.save(WEB, value, [], expected=7)
            assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (WEB, 7, None)

    async def test_conflict_saves_neither_value_nor_entries(self, store: Store) -> None:
        revision = await store.save(WEB, b"one", entries(1), expected=None)
        before = await whole_journal(store)
        with pytest.raises(RevisionConflict):
            await store.save(WEB, b"two", entries(1, first=2), expected=revision + 1)
        assert await store.load(WEB) == Record(WEB, b"one", revision)
        assert await whole_journal(store) == before

    async def test_conflict_does_not_affect_concurrent_saves(self, store: Store) -> None:
        await store.save(WEB, b"one", [], expected=None)
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(8)]
        saves = [store.save(key, b"value", entries(1), expected=None) for key in keys]
        saves.insert(4, store.save(WEB, b"two", entries(1), expected=None))
        results = await asyncio.gather(*saves, return_exceptions=True)
        assert isinstance(results.pop(4), RevisionConflict)
        loaded = [await store.load(key) for key in keys]
        assert [record and (record.key, record.value, record.revision) for record in loaded] == [
            (key, b"value", revision) for key, revision in zip(keys, results, strict=True)
        ]
        assert Counter(row.key for row in await whole_journal(store)) == Counter(keys)

    async def test_exactly_one_of_racing_writers_wins(self, store: Store) -> None:
        revision: int | None = None
        for _ in range(10):
            attempts = [store.save(WEB, f"writer {n}".encode(), entries(1), expected=revision) for n in range(16)]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            won = [(n, result) for n, result in enumerate(results) if isinstance(result, int)]
            assert len(won) == 1
            assert sum(isinstance(result, RevisionConflict) for result in results) == 15
            winner, revision = won[0]
            assert await store.load(WEB) == Record(WEB, f"writer {winner}".encode(), revision)
        assert len(await whole_journal(store)) == 10

    async def test_no_increment_of_racing_writers_is_lost(self, store: Store) -> None:
        await store.save(WEB, b"0", [], expected=None)
        won: list[int] = []

        async def count_up(times: int) -> None:
            while times:
                current = await store.load(WEB)
                assert current is not None
                try:
                    value = str(int(current.value) + 1).encode()
                    won.append(await store.save(WEB, value, entries(1), expected=current.revision))
                    times -= 1
                except RevisionConflict:
                    continue

        await asyncio.gather(*(count_up(10) for _ in range(8)))
        final = await store.load(WEB)
        assert final is not None
        assert final == Record(WEB, b"80", max(won))
        assert len(set(won)) == 80
        assert len(await whole_journal(store)) == 80

    async def test_revision_is_never_reused_after_deletion(self, store: Store) -> None:
        used: list[int] = []
        for _ in range(5):
            used.append(await store.save(WEB, b"alive", [], expected=None))
            used.append(await store.save(WEB, None, [], expected=used[-1]))
        assert used == sorted(set(used))

    async def test_stale_revision_does_not_reach_the_recreated_record(self, store: Store) -> None:
        first = await store.save(WEB, b"first life", [], expected=None)
        await store.save(WEB, None, [], expected=first)
        second = await store.save(WEB, b"second life", [], expected=None)
        for value in (b"late", None):
            with pytest.raises(RevisionConflict):
                await store.save(WEB, value, [], expected=first)
        assert await store.load(WEB) == Record(WEB, b"second life", second)

    async def test_deletion_must_name_its_revision(self, store: Store) -> None:
        with pytest.raises(ValueError, match="scope/web"):
            await store.save(WEB, None, entries(1), expected=None)
        assert await whole_journal(store) == []

    @pytest.mark.parametrize("revision", [-1, 1 << 63])
    async def test_invalid_revision_is_refused(self, store: Store, revision: int) -> None:
        with pytest.raises(ValueError, match=r"invalid revision -?[0-9]+ of scope/web"):
            await store.save(WEB, b"value", [], expected=revision)

    async def test_id_that_is_not_valid_unicode_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="not valid Unicode"):
            await store.save(RecordKey(RecordKind.SCOPE, "\ud800"), b"value", [], expected=None)

    async def test_record_of_exactly_the_limit_fits(self, store: Store) -> None:
        value = bytes(range(256)) * (MAX_RECORD_BYTES // 256)
        assert len(value) == MAX_RECORD_BYTES
        revision = await store.save(WEB, value, [], expected=None)
        assert await store.load(WEB) == Record(WEB, value, revision)

    async def test_record_of_one_byte_more_is_refused(self, store: Store) -> None:
        revision = await store.save(WEB, b"small", [], expected=None)
        with pytest.raises(RecordTooLarge) as refusal:
            await store.save(WEB, bytes(MAX_RECORD_BYTES + 1), entries(1), expected=revision)
        assert (refusal.value.key, refusal.value.size, refusal.value.limit) == (
            WEB,
            MAX_RECORD_BYTES + 1,
            MAX_RECORD_BYTES,
        )
        assert await store.load(WEB) == Record(WEB, b"small", revision)
        assert await whole_journal(store) == []

    async def test_save_is_accepted_while_its_guards_are_as_expected(self, store: Store) -> None:
        hold = await store.save(HOLD, b"free", [], expected=None)
        lease = await store.save(LEASE, b"mine", [], expected=None)
        first = await store.save(WEB, b"one", entries(1), expected=None, guards={HOLD: hold, LEASE: lease})
        second = await store.save(WEB, b"two", entries(1), expected=first, guards={HOLD: hold, LEASE: lease})
        assert await store.load(WEB) == Record(WEB, b"two", second)
        await store.save(WEB, None, entries(1), expected=second, guards={HOLD: hold})
        assert await store.load(WEB) is None
        assert await store.load(HOLD) == Record(HOLD, b"free", hold)
        assert {row.key for row in await whole_journal(store)} == {WEB}

    @pytest.mark.parametrize("value", [b"two", None])
    async def test_changed_guard_refuses_the_save_and_is_named(self, store: Store, value: bytes | None) -> None:
        web = await store.save(WEB, b"one", [], expected=None)
        lease = await store.save(LEASE, b"mine", [], expected=None)
        stale = await store.save(HOLD, b"free", [], expected=None)
        newest = await store.save(HOLD, b"held", [], expected=stale)
        with pytest.raises(GuardConflict) as conflict:
            await store.save(WEB, value, entries(1), expected=web, guards={LEASE: lease, HOLD: stale})
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (HOLD, stale, newest)
        assert await store.load(WEB) == Record(WEB, b"one", web)
        assert await whole_journal(store) == []
        await store.save(WEB, value, entries(1), expected=web, guards={LEASE: lease, HOLD: newest})

    async def test_deleted_guard_refuses_the_save(self, store: Store) -> None:
        hold = await store.save(HOLD, b"free", [], expected=None)
        await store.save(HOLD, None, [], expected=hold)
        with pytest.raises(GuardConflict) as conflict:
            await store.save(WEB, b"one", entries(1), expected=None, guards={HOLD: hold})
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (HOLD, hold, None)
        assert (await store.load(WEB), await whole_journal(store)) == (None, [])

    async def test_recreated_guard_refuses_the_save(self, store: Store) -> None:
        hold = await store.save(HOLD, b"free", [], expected=None)
        await store.save(HOLD, None, [], expected=hold)
        recreated = await store.save(HOLD, b"free", [], expected=None)
        with pytest.raises(GuardConflict) as conflict:
            await store.save(WEB, b"one", [], expected=None, guards={HOLD: hold})
        assert (conflict.value.expected, conflict.value.actual) == (hold, recreated)

    async def test_guard_may_be_that_a_record_does_not_exist(self, store: Store) -> None:
        web = await store.save(WEB, b"one", [], expected=None, guards={HOLD: None})
        hold = await store.save(HOLD, b"held", [], expected=None)
        with pytest.raises(GuardConflict) as conflict:
            await store.save(WEB, b"two", entries(1), expected=web, guards={HOLD: None})
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (HOLD, None, hold)
        await store.save(HOLD, None, [], expected=hold)
        web = await store.save(WEB, b"three", [], expected=web, guards={HOLD: None})
        assert await store.load(WEB) == Record(WEB, b"three", web)

    async def test_stale_record_conflicts_although_its_guards_hold(self, store: Store) -> None:
        hold = await store.save(HOLD, b"free", [], expected=None)
        web = await store.save(WEB, b"one", [], expected=None)
        with pytest.raises(RevisionConflict) as conflict:
            await store.save(WEB, b"two", [], expected=None, guards={HOLD: hold})
        assert not isinstance(conflict.value, GuardConflict)
        assert (conflict.value.key, conflict.value.expected, conflict.value.actual) == (WEB, None, web)

    async def test_record_cannot_guard_its_own_save(self, store: Store) -> None:
        web = await store.save(WEB, b"one", [], expected=None)
        with pytest.raises(ValueError, match="scope/web cannot guard its own save"):
            await store.save(WEB, b"two", entries(1), expected=web, guards={WEB: web})
        assert (await store.load(WEB), await whole_journal(store)) == (Record(WEB, b"one", web), [])

    async def test_invalid_guard_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match=r"invalid revision -?[0-9]+ of fleet/hold"):
            await store.save(WEB, b"one", [], expected=None, guards={HOLD: -1})
        with pytest.raises(ValueError, match="not valid Unicode"):
            await store.save(WEB, b"one", [], expected=None, guards={RecordKey(RecordKind.FLEET, "\ud800"): 1})
        many: dict[RecordKey, int | None] = {RecordKey(RecordKind.LEASE, str(n)): None for n in range(MAX_GUARDS + 1)}
        with pytest.raises(ValueError, match=f"at most {MAX_GUARDS}"):
            await store.save(WEB, b"one", [], expected=None, guards=many)
        assert await store.load(WEB) is None

    async def test_save_that_changes_the_guard_of_a_concurrent_save_refuses_it(self, store: Store) -> None:
        """Saved together or not, the second save sees what the first one has changed."""
        hold = await store.save(HOLD, b"free", [], expected=None)
        before, changed, after = await asyncio.gather(
            store.save(BATCH, b"before", entries(1), expected=None, guards={HOLD: hold}),
            store.save(HOLD, b"held", entries(1), expected=hold),
            store.save(WEB, b"after", entries(1), expected=None, guards={HOLD: hold}),
            return_exceptions=True,
        )
        assert isinstance(before, int)
        assert isinstance(changed, int)
        assert isinstance(after, GuardConflict)
        assert (after.key, after.expected, after.actual) == (HOLD, hold, changed)
        assert [row.key for row in await whole_journal(store)] == [BATCH, HOLD]

    async def test_save_that_deletes_the_guard_of_a_concurrent_save_refuses_it(self, store: Store) -> None:
        hold = await store.save(HOLD, b"free", [], expected=None)
        _, guarded, unguarded = await asyncio.gather(
            store.save(HOLD, None, [], expected=hold),
            store.save(WEB, b"one", [], expected=None, guards={HOLD: hold}),
            store.save(BATCH, b"one", [], expected=None, guards={HOLD: None}),
            return_exceptions=True,
        )
        assert isinstance(guarded, GuardConflict)
        assert isinstance(unguarded, int)

    async def test_no_save_of_racing_writers_has_an_outdated_guard(self, store: Store) -> None:
        """Each line names the value of the guard on which it was decided; the journal shows the order of the saves."""
        holds = [await store.save(HOLD, b"0", [entry(1, why="0")], expected=None)]

        async def change(times: int) -> None:
            for number in range(1, times + 1):
                await asyncio.sleep(0)
                saved = await store.save(HOLD, b"", [entry(1, why=str(number))], expected=holds[-1])
                holds.append(saved)

        async def start(key: RecordKey) -> None:
            number = -1
            while number < 20:
                number, hold = len(holds) - 1, holds[-1]
                present = await store.load(key)
                expected = present.revision if present else None
                with suppress(GuardConflict):
                    line = entry(1, why=str(number))
                    await store.save(key, b"value", [line], expected=expected, guards={HOLD: hold})

        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(6)]
        await asyncio.gather(change(20), *(start(key) for key in keys))
        current = ""
        for row in await whole_journal(store):
            current = row.entry.why if row.key == HOLD else current
            assert row.entry.why == current

    async def test_cancelled_save_leaves_the_store_consistent(self, store: Store) -> None:
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(40)]
        saves = [asyncio.create_task(store.save(key, b"value", entries(1), expected=None)) for key in keys]
        await asyncio.sleep(0)
        for save in saves[::2]:
            save.cancel()
        results = await asyncio.gather(*saves, return_exceptions=True)
        assert all(isinstance(result, int) for result in results[1::2])
        await store.save(WEB, b"after", entries(1), expected=None)
        kept = {key for key in keys if await store.load(key)}
        assert kept >= set(keys[1::2])
        assert Counter(row.key for row in await whole_journal(store)) == Counter([*kept, WEB])

    async def test_journal_keeps_every_field_of_an_entry(self, store: Store) -> None:
        full = Entry(
            n=3,
            at=datetime(2026, 3, 1, 13, 5, 6, 789_012, tzinfo=timezone(timedelta(hours=1))),
            kind=EntryKind.IMPACT_FAILED,
            by="platform",
            why="no answer — “timeout”",
            event="602D9444-D2CD-49C7-8624-8643E7171297",
            vms=("web-0", "web-1"),
            incarnation=12,
            facts={"host": "hv-0", "after": "30s"},
        )
        await store.save(WEB, b"value", [full], expected=None)
        assert [(row.key, row.entry) for row in await store.journal(JournalQuery())] == [(WEB, full)]

    async def test_entry_without_a_time_zone_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="time zone"):
            await store.save(WEB, b"value", [entry(1, at=NOON.replace(tzinfo=None))], expected=None)
        assert await store.load(WEB) is None

    async def test_journal_is_in_order_of_saving_not_of_times(self, store: Store) -> None:
        revision = await store.save(WEB, b"1", [entry(1), entry(2, at=NOON - timedelta(hours=1))], expected=None)
        await store.save(BATCH, b"1", [entry(1, at=NOON - timedelta(days=1))], expected=None)
        await store.save(WEB, b"2", [entry(3, at=NOON - timedelta(minutes=1))], expected=revision)
        rows = await store.journal(JournalQuery())
        assert [(row.key, row.entry.n) for row in rows] == [(WEB, 1), (WEB, 2), (BATCH, 1), (WEB, 3)]
        positions = [row.position for row in rows]
        assert positions == sorted(set(positions))
        assert positions[0] > 0

    async def test_deletion_carries_entries(self, store: Store) -> None:
        revision = await store.save(WEB, b"value", [entry(1, did=EntryKind.SCOPE_CREATED)], expected=None)
        await store.save(WEB, None, [entry(2, did=EntryKind.SCOPE_REMOVED)], expected=revision)
        assert [row.entry.kind for row in await store.journal(JournalQuery(key=WEB))] == [
            EntryKind.SCOPE_CREATED,
            EntryKind.SCOPE_REMOVED,
        ]

    async def test_journal_by_key_has_only_that_record(self, store: Store) -> None:
        await store.save(WEB, b"value", entries(3), expected=None)
        await store.save(BATCH, b"value", entries(2), expected=None)
        await store.save(RecordKey(RecordKind.CAMPAIGN, "web"), b"value", entries(1), expected=None)
        rows = await store.journal(JournalQuery(key=WEB))
        assert [(row.key, row.entry) for row in rows] == [(WEB, each) for each in entries(3)]

    async def test_time_range_includes_its_start_but_not_its_end(self, store: Store) -> None:
        minutes = [entry(n, at=NOON + timedelta(minutes=n)) for n in range(1, 6)]
        await store.save(WEB, b"value", minutes, expected=None)
        since, until = minutes[1].at, minutes[3].at

        async def numbers(query: JournalQuery) -> list[int]:
            return [n for _, n in await find_rows(store, query)]

        assert await numbers(JournalQuery(since=since)) == [2, 3, 4, 5]
        assert await numbers(JournalQuery(until=until)) == [1, 2, 3]
        assert await numbers(JournalQuery(since=since, until=until)) == [2, 3]
        assert await numbers(JournalQuery(key=WEB, since=since, until=until)) == [2, 3]
        assert await numbers(JournalQuery(by="operator", since=since, until=until)) == [2, 3]
        assert await numbers(JournalQuery(kinds=(EntryKind.SCHEDULED,), since=since, until=until)) == [2, 3]
        assert await numbers(JournalQuery(key=BATCH, since=since, until=until)) == []
        assert await numbers(JournalQuery(since=until, until=since)) == []

    @pytest.mark.parametrize("key", [None, WEB], ids=["all", "by key"])
    @pytest.mark.parametrize("since", [None, NOON - timedelta(days=1)], ids=["always", "by time"])
    async def test_pages_follow_each_other_without_gap_or_repetition(
        self, store: Store, key: RecordKey | None, since: datetime | None
    ) -> None:
        await store.save(WEB, b"value", entries(10), expected=None)
        query = JournalQuery(key=key, since=since)
        whole = await store.journal(query)
        assert len(whole) == 10
        after, pages = 0, []
        while page := await store.journal(JournalQuery(key=key, since=since, after=after, limit=4)):
            pages.append(page)
            after = page[-1].position
        assert [len(page) for page in pages] == [4, 4, 2]
        assert [row for page in pages for row in page] == whole

    async def test_page_begins_after_the_given_position(self, store: Store) -> None:
        await store.save(WEB, b"value", entries(3), expected=None)
        rows = await store.journal(JournalQuery())
        assert await store.journal(JournalQuery(after=rows[0].position)) == rows[1:]
        assert await store.journal(JournalQuery(after=rows[2].position)) == []

    async def test_journal_by_event_has_only_that_event(self, store: Store) -> None:
        await store.save(WEB, b"value", [entry(1), entry(2, event="E1"), entry(3, event="E2")], expected=None)
        await store.save(BATCH, b"value", [entry(1, event="E1", did=EntryKind.STARTED)], expected=None)
        assert await find_rows(store, JournalQuery(event="E1")) == [(WEB, 2), (BATCH, 1)]
        assert await find_rows(store, JournalQuery(event="E1", key=BATCH)) == [(BATCH, 1)]
        assert await find_rows(store, JournalQuery(event="e1")) == []

    async def test_journal_by_vm_has_rows_that_name_it_and_rows_about_its_whole_record(self, store: Store) -> None:
        lines = [
            entry(1, did=EntryKind.SCOPE_CREATED, vms=("web-0", "web-1")),
            entry(2, did=EntryKind.HELD, why='"vms":["web-1"] are said to be slow'),
            entry(3, did=EntryKind.VM_CHANGED, vms=("web-1",), why="web-0 is full"),
            entry(4, did=EntryKind.VM_CHANGED, vms=("web-10",)),
            entry(5, did=EntryKind.STARTED, vms=("Web-0",), event="E1"),
        ]
        await store.save(WEB, b"value", lines, expected=None)
        await store.save(BATCH, b"value", [entry(1, vms=("web-0",)), entry(2)], expected=None)
        assert await find_rows(store, JournalQuery(key=WEB, vm="web-0")) == [(WEB, 1), (WEB, 2), (WEB, 5)]
        assert await find_rows(store, JournalQuery(key=WEB, vm="WEB-1")) == [(WEB, 1), (WEB, 2), (WEB, 3)]
        assert await find_rows(store, JournalQuery(key=WEB, vm="web-0", event="E1")) == [(WEB, 5)]
        assert await find_rows(store, JournalQuery(key=WEB, vm="web-1", event="E1")) == []
        assert await find_rows(store, JournalQuery(key=WEB, vm="web-2")) == [(WEB, 2)]

    async def test_vms_in_facts_are_not_matched(self, store: Store) -> None:
        told = Entry(n=1, at=NOON, kind=EntryKind.SCOPE_CHANGED, by="operator", facts={"vms": "3", "vm": "web-0"})
        await store.save(WEB, b"value", [told], expected=None)
        assert await find_rows(store, JournalQuery(key=WEB, vm="web-7")) == [(WEB, 1)]

    async def test_vm_without_its_record_is_refused(self) -> None:
        with pytest.raises(ValueError, match="web-0 needs the key"):
            JournalQuery(vm="web-0")

    @pytest.mark.parametrize("position", [-1, 1 << 63])
    async def test_invalid_position_is_refused(self, position: int) -> None:
        with pytest.raises(ValueError, match="invalid journal position"):
            JournalQuery(after=position)
        with pytest.raises(ValueError, match="invalid journal position"):
            JournalQuery(before=position)

    async def test_journal_by_kind_has_only_these_kinds(self, store: Store) -> None:
        await store.save(WEB, b"value", [entry(n, did=did) for n, did in enumerate(EntryKind, 1)], expected=None)
        kinds = (EntryKind.STARTED, EntryKind.HELD)
        rows = await store.journal(JournalQuery(kinds=kinds))
        assert [row.entry.kind for row in rows] == [did for did in EntryKind if did in kinds]
        assert len(await store.journal(JournalQuery(kinds=tuple(EntryKind)))) == len(EntryKind)

    async def test_journal_by_request_has_only_its_rows(self, store: Store) -> None:
        made = [
            Entry(n=n, at=NOON, kind=EntryKind.SCOPE_CREATED, by="ada", facts={"kind": "standalone"} | key)
            for n, key in enumerate(({"key": "k1"}, {"key": "k2"}, {"why": "k1"}, {}), start=1)
        ]
        await store.save(WEB, b"value", made, expected=None)
        await store.save(BATCH, b"value", made[:1], expected=None)
        found = await store.journal(JournalQuery(request="k1"))
        assert [(row.key, row.entry) for row in found] == [(WEB, made[0]), (BATCH, made[0])]
        assert [row.key for row in await store.journal(JournalQuery(request="k1", key=BATCH))] == [BATCH]
        assert await store.journal(JournalQuery(request="k3")) == []

    async def test_journal_by_author_has_only_their_rows(self, store: Store) -> None:
        await store.save(WEB, b"value", [entry(1, by="ada"), entry(2, by="Ada"), entry(3, by="clock")], expected=None)
        await store.save(BATCH, b"value", [entry(1, by="ada")], expected=None)
        assert await find_rows(store, JournalQuery(by="ada")) == [(WEB, 1), (BATCH, 1)]
        assert await find_rows(store, JournalQuery(by="ada", key=WEB)) == [(WEB, 1)]

    async def test_every_field_of_a_query_narrows_it(self, store: Store) -> None:
        late = NOON + timedelta(hours=1)
        wanted = entry(9, at=late, did=EntryKind.STARTED, by="clock", event="E1", vms=("web-0",))
        others = [
            msgspec.structs.replace(wanted, **change)
            for change in (
                {"n": 1, "at": NOON},
                {"n": 2, "kind": EntryKind.COMPLETED},
                {"n": 3, "by": "ada"},
                {"n": 4, "event": "E2"},
                {"n": 5, "vms": ("web-1",)},
            )
        ]
        await store.save(WEB, b"value", [*others, wanted], expected=None)
        await store.save(BATCH, b"value", [msgspec.structs.replace(wanted, n=6)], expected=None)
        query = JournalQuery(
            key=WEB,
            event="E1",
            vm="web-0",
            kinds=(EntryKind.STARTED,),
            by="clock",
            since=late,
            until=late + timedelta(1),
        )
        assert await find_rows(store, query) == [(WEB, 9)]

    @pytest.mark.parametrize(
        "query",
        [
            pytest.param(JournalQuery(), id="all"),
            pytest.param(JournalQuery(key=WEB), id="key"),
            pytest.param(JournalQuery(key=WEB, vm="web-0"), id="vm"),
            pytest.param(JournalQuery(event="E1"), id="event"),
            pytest.param(JournalQuery(by="operator"), id="author"),
            pytest.param(JournalQuery(kinds=(EntryKind.SCHEDULED, EntryKind.STARTED)), id="kinds"),
            pytest.param(JournalQuery(since=NOON), id="time"),
        ],
    )
    async def test_newest_first_is_the_same_backwards_page_by_page(self, store: Store, query: JournalQuery) -> None:
        kinds = (EntryKind.SCHEDULED, EntryKind.STARTED)
        lines = [entry(n, did=kinds[n % 2], event="E1", vms=("web-0",)) for n in range(1, 11)]
        await store.save(WEB, b"value", lines, expected=None)
        forwards = await store.journal(query)
        assert len(forwards) == 10
        backwards = msgspec.structs.replace(query, newest_first=True, limit=4)
        assert await store.journal(backwards) == forwards[:-5:-1]
        assert await whole_journal(store, backwards) == forwards[::-1]

    async def test_page_can_be_limited_by_two_positions(self, store: Store) -> None:
        await store.save(WEB, b"value", entries(5), expected=None)
        rows = await store.journal(JournalQuery())
        between = JournalQuery(after=rows[0].position, before=rows[4].position)
        assert await store.journal(between) == rows[1:4]
        assert await store.journal(msgspec.structs.replace(between, newest_first=True)) == rows[3:0:-1]

    async def test_positions_increase_with_every_saved_row(self, store: Store) -> None:
        revision = await store.save(WEB, b"1", entries(3), expected=None)
        with pytest.raises(RevisionConflict):
            await store.save(WEB, b"2", entries(2, first=4), expected=None)
        await store.save(BATCH, b"1", [], expected=None)
        await store.save(WEB, b"2", entries(2, first=4), expected=revision)
        rows = await store.journal(JournalQuery())
        positions = [row.position for row in rows]
        assert [row.entry.n for row in rows] == [1, 2, 3, 4, 5]
        assert positions == sorted(set(positions))
        assert await store.extent() == Extent(pruned=0, last=positions[-1])

    async def test_extent_has_the_first_and_last_position(self, store: Store) -> None:
        assert await store.extent() == Extent(pruned=0, last=0)
        await store.save(WEB, b"1", entries(10), expected=None)
        positions = [row.position for row in await store.journal(JournalQuery())]
        assert await store.extent() == Extent(pruned=0, last=positions[-1])
        await store.prune(Retention(rows=4), now=NOON)
        assert await store.extent() == Extent(pruned=positions[5], last=positions[-1])
        await store.prune(Retention(rows=0), now=NOON)
        assert await store.extent() == Extent(pruned=positions[-1], last=positions[-1])

    async def test_extent_knows_of_a_gap_in_the_middle(self, store: Store) -> None:
        old = NOON - timedelta(days=1)
        await store.save(WEB, b"1", [entry(1), entry(2, at=old), entry(3)], expected=None)
        rows = await store.journal(JournalQuery())
        assert await store.prune(Retention(age=timedelta(hours=1)), now=NOON) == 1
        assert (await store.extent()).pruned == rows[1].position

    async def test_check_changes_nothing(self, store: Store) -> None:
        revision = await store.save(WEB, b"value", entries(2), expected=None)
        before = await store.extent(), await whole_journal(store)
        for _ in range(3):
            await store.check()
        assert (await store.extent(), await whole_journal(store)) == before
        assert await store.load(WEB) == Record(WEB, b"value", revision)
        assert await store.save(WEB, b"next", [], expected=revision) > revision

    async def test_prune_removes_rows_older_than_the_age(self, store: Store) -> None:
        hours = [entry(n, at=NOON - timedelta(hours=n)) for n in range(1, 6)]
        revision = await store.save(WEB, b"value", hours, expected=None)
        retention = Retention(age=timedelta(hours=3))
        assert await store.prune(retention, now=NOON) == 2
        assert await store.prune(retention, now=NOON) == 0
        assert [row.entry for row in await store.journal(JournalQuery())] == hours[:3]
        assert await store.load(WEB) == Record(WEB, b"value", revision)

    async def test_prune_removes_the_first_rows_beyond_the_number(self, store: Store) -> None:
        await store.save(WEB, b"value", entries(6), expected=None)
        await store.save(BATCH, b"value", entries(4), expected=None)
        retention = Retention(rows=5)
        assert await store.prune(retention, now=NOON) == 5
        assert await store.prune(retention, now=NOON) == 0
        rows = await store.journal(JournalQuery())
        assert [(row.key, row.entry.n) for row in rows] == [(WEB, 6), (BATCH, 1), (BATCH, 2), (BATCH, 3), (BATCH, 4)]

    async def test_prune_by_age_and_number_keeps_rows_that_both_allow(self, store: Store) -> None:
        hours = [entry(n, at=NOON - timedelta(hours=6 - n)) for n in range(1, 6)]
        await store.save(WEB, b"value", hours, expected=None)
        await prune_all(store, Retention(age=timedelta(hours=4), rows=3))
        assert [row.entry for row in await store.journal(JournalQuery())] == hours[2:]

    async def test_prune_without_bounds_removes_nothing(self, store: Store) -> None:
        await store.save(WEB, b"value", entries(3), expected=None)
        assert await store.prune(Retention(), now=NOON + timedelta(days=10_000)) == 0
        assert len(await store.journal(JournalQuery())) == 3

    @pytest.mark.parametrize("retention", [Retention(rows=0), Retention(age=timedelta(0))], ids=["number", "age"])
    async def test_prune_works_in_small_batches(self, store: Store, retention: Retention) -> None:
        await store.save(WEB, b"value", entries(2 * PRUNE_BATCH + 100), expected=None)
        later = NOON + timedelta(hours=1)
        assert [await store.prune(retention, now=later) for _ in range(4)] == [PRUNE_BATCH, PRUNE_BATCH, 100, 0]
        assert await store.journal(JournalQuery()) == []

    async def test_position_is_never_reused_after_pruning(self, store: Store) -> None:
        revision = await store.save(WEB, b"1", entries(3), expected=None)
        last = (await store.journal(JournalQuery()))[-1].position
        await store.prune(Retention(rows=0), now=NOON)
        await store.save(WEB, b"2", entries(1, first=4), expected=revision)
        assert [row.entry.n for row in await store.journal(JournalQuery(after=last))] == [4]

    async def test_watch_of_an_empty_store_starts_with_the_end_of_the_snapshot(self, store: Store) -> None:
        async with store.watch() as changes:
            assert await read_items(changes, 1) == [SnapshotEnd()]

    async def test_watch_yields_existing_records_then_changes(self, store: Store) -> None:
        web = await store.save(WEB, b"web 1", [], expected=None)
        gone = await store.save(RecordKey(RecordKind.SCOPE, "gone"), b"gone", [], expected=None)
        await store.save(RecordKey(RecordKind.SCOPE, "gone"), None, [], expected=gone)
        batch = await store.save(BATCH, b"batch 1", [], expected=None)
        async with store.watch() as changes:
            snapshot = await read_snapshot(changes)
            assert sorted(snapshot, key=str) == sorted(
                [Record(WEB, b"web 1", web), Record(BATCH, b"batch 1", batch)], key=str
            )
            changed = await store.save(WEB, b"web 2", [], expected=web)
            assert await read_items(changes, 1) == [Record(WEB, b"web 2", changed)]
            deleted = await store.save(BATCH, None, [], expected=batch)
            assert await read_items(changes, 1) == [Deleted(BATCH, deleted)]
            recreated = await store.save(BATCH, b"batch 2", [], expected=None)
            assert await read_items(changes, 1) == [Record(BATCH, b"batch 2", recreated)]

    async def test_paused_watcher_gets_only_the_newest_value_of_each_key(self, store: Store) -> None:
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(5)]
        newest: dict[RecordKey, Record] = {}
        async with store.watch() as changes:
            await read_snapshot(changes)
            for step in range(20):
                for key in keys:
                    value = f"{key} {step}".encode()
                    expected = newest[key].revision if key in newest else None
                    newest[key] = Record(key, value, await store.save(key, value, [], expected=expected))
            items = await read_until(changes, {key: record.revision for key, record in newest.items()})
        assert sorted(items, key=str) == sorted(newest.values(), key=str)

    async def test_paused_watcher_gets_the_recreated_record(self, store: Store) -> None:
        first = await store.save(WEB, b"first life", [], expected=None)
        async with store.watch() as changes:
            await read_snapshot(changes)
            await store.save(WEB, None, [], expected=first)
            second = await store.save(WEB, b"second life", [], expected=None)
            assert await read_items(changes, 1) == [Record(WEB, b"second life", second)]

    async def test_paused_watcher_gets_the_deletion_of_a_short_lived_record(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            revision = await store.save(WEB, b"value", [], expected=None)
            deleted = await store.save(WEB, None, [], expected=revision)
            assert (await read_until(changes, {WEB: deleted}))[-1] == Deleted(WEB, deleted)

    async def test_changes_during_the_snapshot_are_yielded_in_order(self, store: Store) -> None:
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(12)]
        large = bytes(MAX_RECORD_BYTES // 2)
        revisions = {key: await store.save(key, large, [], expected=None) for key in keys}
        async with store.watch() as changes:
            given = await read_items(changes, 3)
            for key in keys[::2]:
                revisions[key] = await store.save(key, b"changed", [], expected=revisions[key])
            deleted = keys[-1]
            revisions[deleted] = await store.save(deleted, None, [], expected=revisions[deleted])
            created = RecordKey(RecordKind.SCOPE, "created")
            revisions[created] = await store.save(created, b"new", [], expected=None)
            given += await read_snapshot(changes)
            assert {item.key for item in given if not isinstance(item, SnapshotEnd | Reached)} >= set(keys[:-1])
            behind = {key: revision for key, revision in revisions.items() if _newest(given).get(key, 0) < revision}
            given += await read_until(changes, behind)
        assert_never_older_after_newer(given)
        assert _newest(given) == revisions

    async def test_watcher_with_busy_writers_gets_the_newest_values(self, store: Store) -> None:
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(6)]
        given: list[WatchItem] = []

        async def write(key: RecordKey) -> None:
            revision = None
            for life in range(4):
                for value in (b"born", b"changed", b"changed again", None):
                    revision = await store.save(key, value, [], expected=revision)
                revision = None
                await store.prune(Retention(rows=life), now=NOON)
            await store.save(key, b"last", [], expected=None)

        async def read() -> None:
            unfinished = set(keys)
            async with store.watch() as changes:
                while unfinished:
                    given.append(item := await anext(changes))
                    if isinstance(item, Record) and item.value == b"last":
                        unfinished.remove(item.key)

        async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(read())
            for key in keys:
                group.create_task(write(key))
        assert_never_older_after_newer(given)
        assert given.count(SnapshotEnd()) == 1

    async def test_watchers_are_independent(self, store: Store) -> None:
        async with store.watch() as one, store.watch() as other:
            await read_snapshot(one)
            await read_snapshot(other)
            revision = await store.save(WEB, b"value", [], expected=None)
            assert await read_items(one, 1) == [Record(WEB, b"value", revision)]
            assert await read_items(other, 1) == [Record(WEB, b"value", revision)]

    async def test_yielded_records_can_be_loaded(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            saving = asyncio.create_task(store.save(WEB, b"value", [], expected=None))
            [item] = await read_items(changes, 1)
            assert await store.load(WEB) == item
            assert await saving == (await store.load(WEB) or Record(WEB, b"", 0)).revision

    async def test_cancelled_wait_loses_no_change(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            waiting = asyncio.ensure_future(read_items(changes, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            revision = await store.save(WEB, b"value", [], expected=None)
            assert await read_items(changes, 1) == [Record(WEB, b"value", revision)]

    async def test_closed_watch_ends(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            waiting = asyncio.ensure_future(read_rest(changes))
            await asyncio.sleep(0)
        async with asyncio.timeout(GUARD_SECONDS):
            assert await waiting == []
        await store.save(WEB, b"value", [], expected=None)
        assert await anext(changes, "ended") == "ended"

    async def test_closing_ends_a_watch_after_its_pending_items(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            revision = await store.save(WEB, b"value", [], expected=None)
            await store.aclose()
            assert await read_items(changes, 1) == [Record(WEB, b"value", revision)]
            with pytest.raises(StoreClosed):
                await read_items(changes, 1)

    async def test_closing_ends_a_watch_that_waits(self, store: Store) -> None:
        async with store.watch() as changes:
            await read_snapshot(changes)
            waiting = asyncio.ensure_future(read_items(changes, 1))
            await asyncio.sleep(0)
            await store.aclose()
            with pytest.raises(StoreClosed):
                await waiting

    async def test_closing_again_does_nothing(self, store: Store) -> None:
        await asyncio.gather(store.aclose(), store.aclose())
        await store.aclose()

    async def test_closed_store_refuses_everything(self, store: Store) -> None:
        revision = await store.save(WEB, b"value", [], expected=None)
        await store.aclose()
        with pytest.raises(StoreClosed):
            await store.load(WEB)
        with pytest.raises(StoreClosed):
            await store.save(WEB, b"late", [], expected=revision)
        with pytest.raises(StoreClosed):
            await store.journal(JournalQuery())
        with pytest.raises(StoreClosed):
            await store.extent()
        with pytest.raises(StoreClosed):
            await store.check()
        with pytest.raises(StoreClosed):
            await store.prune(Retention(rows=0), now=NOON)
        with pytest.raises(StoreClosed):
            async with store.watch() as changes:
                await read_items(changes, 1)


class DurableStoreContract(StoreContract):
    """What a store promises beyond that, if it keeps its data when it is closed."""

    async def test_everything_is_kept_over_a_restart(self, open_store: OpenStore) -> None:
        store = await open_store()
        web = await store.save(WEB, b"web", entries(2), expected=None)
        batch = await store.save(BATCH, b"batch", entries(1), expected=None)
        await store.save(BATCH, None, entries(1, first=2), expected=batch)
        rows = await store.journal(JournalQuery())
        await store.aclose()

        store = await open_store()
        assert await store.load(WEB) == Record(WEB, b"web", web)
        assert await store.load(BATCH) is None
        assert await store.journal(JournalQuery()) == rows
        async with store.watch() as changes:
            assert await read_items(changes, 2) == [Record(WEB, b"web", web), SnapshotEnd()]
        await store.aclose()

    async def test_save_that_was_accepted_before_closing_is_kept(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(30)]
        saves: list[asyncio.Task[int]] = []
        for wave in (keys[:1], keys[1:]):  # the first may be on its way to the disk when the others come
            saves += [asyncio.create_task(store.save(key, b"value", entries(1), expected=None)) for key in wave]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await store.aclose()
        revisions = await asyncio.gather(*saves)

        store = await open_store()
        assert [await store.load(key) for key in keys] == [
            Record(key, b"value", revision) for key, revision in zip(keys, revisions, strict=True)
        ]
        await store.aclose()

    async def test_neither_revision_nor_position_is_reused_after_a_restart(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.save(WEB, b"first life", entries(1), expected=None)
        deleted = await store.save(WEB, None, entries(1, first=2), expected=first)
        last = (await store.journal(JournalQuery()))[-1].position
        await prune_all(store, Retention(rows=0))
        await store.aclose()

        store = await open_store()
        assert await store.extent() == Extent(pruned=last, last=last)
        second = await store.save(WEB, b"second life", entries(1), expected=None)
        assert second > deleted
        assert [row.entry.n for row in await store.journal(JournalQuery(after=last))] == [1]
        with pytest.raises(RevisionConflict):
            await store.save(WEB, b"late", [], expected=first)
        await store.aclose()

    async def test_pruning_by_number_continues_after_a_restart(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.save(WEB, b"value", entries(10), expected=None)
        assert await store.prune(Retention(rows=8), now=NOON) == 2
        await store.aclose()

        store = await open_store()
        assert await store.prune(Retention(rows=5), now=NOON) == 3
        assert [row.entry.n for row in await store.journal(JournalQuery())] == [6, 7, 8, 9, 10]
        await store.aclose()


def _newest(items: Sequence[WatchItem]) -> dict[RecordKey, int]:
    return {item.key: item.revision for item in items if not isinstance(item, SnapshotEnd | Reached)}
