"""A feed yields every row of the journal once and in order, whatever happens while it is read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.fleet import journal, lease_record
from forewarn.fleet.errors import JournalPruned, PositionNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.journal import Journal
from forewarn.fleet.lease_record import LeaseHolder
from forewarn.store.memory import MemoryStore
from forewarn.store.port import (
    JournalQuery,
    JournalRow,
    RecordKey,
    RecordKind,
    Retention,
    Store,
    StoreClosed,
    StoreFailed,
)
from forewarn.store.sqlite.store import SqliteStore
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import run_fleet, until
from tests.store.contract import NOON, entries
from tests.support.examples import examples

GUARD = 60


@asynccontextmanager
async def fed(store: Store) -> AsyncIterator[Journal]:
    """Feeds that are woken by the store's own watch, as the fleet wakes them."""

    async def follow(feeds: Journal) -> None:
        with suppress(StoreClosed):
            async with store.watch() as changes:
                async for _ in changes:
                    feeds.wake()

    async with tasks_until_exit() as tasks:
        feeds = Journal(store, tasks)
        tasks.create_task(follow(feeds))
        yield feeds


async def save(store: Store, count: int, name: str = "web") -> None:
    key = RecordKey(RecordKind.SCOPE, name)
    record = await store.load(key)
    await store.save(key, b"value", entries(count), expected=record.revision if record else None)


async def rows_after(feeds: Journal, after: int | None) -> AsyncGenerator[JournalRow, None]:
    async with aclosing(feeds.follow(after)) as pages:
        async for page in pages:
            assert page
            for row in page:
                yield row


async def take(rows: AsyncIterator[JournalRow], count: int) -> list[int]:
    async with asyncio.timeout(GUARD):
        return [(await anext(rows)).position for _ in range(count)]


async def test_feed_yields_existing_rows_then_new_ones() -> None:
    store = MemoryStore()
    await save(store, 3)
    async with fed(store) as feeds, aclosing(rows_after(feeds, 1)) as rows:
        assert await take(rows, 2) == [2, 3]
        waiting = asyncio.ensure_future(take(rows, 2))
        await save(store, 2)
        assert await waiting == [4, 5]


async def test_feed_from_now_on_yields_only_new_rows() -> None:
    store = MemoryStore()
    await save(store, 3)
    async with fed(store) as feeds, aclosing(rows_after(feeds, None)) as rows:
        waiting = asyncio.ensure_future(take(rows, 1))
        await until(lambda: feeds.open == 1)
        for _ in range(10):
            await asyncio.sleep(0)
        await save(store, 1)
        assert await waiting == [4]


async def test_feed_far_behind_reads_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await save(store, 5_000)
    async with fed(store) as feeds, aclosing(rows_after(feeds, 0)) as rows:
        assert await take(rows, 5_000) == list(range(1, 5_001))


class CountingStore(MemoryStore):
    """A memory store that counts how often its journal is read."""

    reads = 0

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        self.reads += 1
        return await super().journal(query)


async def test_newest_rows_are_read_once_for_all_feeds() -> None:
    store = CountingStore()
    async with fed(store) as feeds:
        readers = [rows_after(feeds, 0) for _ in range(200)]
        waiting = [asyncio.ensure_future(take(rows, 1)) for rows in readers]
        await until(lambda: feeds.open == 200)
        await save(store, 1)
        assert await asyncio.gather(*waiting) == [[1]] * 200
        before = store.reads
        waiting = [asyncio.ensure_future(take(rows, 1)) for rows in readers]
        await save(store, 1)
        assert await asyncio.gather(*waiting) == [[2]] * 200
        assert store.reads - before <= 4
        for rows in readers:
            await rows.aclose()
        assert feeds.open == 0


async def test_slow_reader_behind_the_tail_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with (
        fed(store) as feeds,
        aclosing(rows_after(feeds, None)) as slow,
        aclosing(rows_after(feeds, None)) as quick,
    ):
        waiting = [asyncio.ensure_future(take(rows, 1)) for rows in (slow, quick)]
        await until(lambda: feeds.open == 2)
        for _ in range(10):
            await asyncio.sleep(0)
        await save(store, 1)
        assert await asyncio.gather(*waiting) == [[1], [1]]
        for _ in range(5):
            await save(store, journal.TAIL_ROWS)
        assert await take(quick, 5 * journal.TAIL_ROWS) == list(range(2, 2 + 5 * journal.TAIL_ROWS))
        assert await take(slow, 5 * journal.TAIL_ROWS) == list(range(2, 2 + 5 * journal.TAIL_ROWS))


async def test_feed_reports_pruned_rows() -> None:
    store = MemoryStore()
    await save(store, 10)
    await store.prune(Retention(rows=4), now=NOON)
    async with fed(store) as feeds:
        with pytest.raises(JournalPruned) as refusal:
            await feeds.resolve_position(5)
        assert (refusal.value.after, refusal.value.pruned_to) == (5, 6)
        with pytest.raises(JournalPruned):
            await take(rows_after(feeds, 2), 1)
        async with aclosing(rows_after(feeds, 6)) as rows:
            assert await take(rows, 4) == [7, 8, 9, 10]


async def test_feed_reports_rows_that_are_pruned_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FEED_PAGE", 2)
    store = MemoryStore()
    await save(store, 10)
    async with fed(store) as feeds, aclosing(rows_after(feeds, 0)) as rows:
        assert await take(rows, 2) == [1, 2]
        await store.prune(Retention(rows=4), now=NOON)
        with pytest.raises(JournalPruned):
            await take(rows, 1)


async def test_feed_reports_that_all_rows_are_pruned_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FEED_PAGE", 2)
    store = MemoryStore()
    await save(store, 10)
    async with fed(store) as feeds, aclosing(rows_after(feeds, 0)) as rows:
        assert await take(rows, 2) == [1, 2]
        await store.prune(Retention(rows=0), now=NOON)
        with pytest.raises(JournalPruned) as refusal:
            await take(rows, 1)
        assert refusal.value.pruned_to == 10


async def test_position_of_other_data_is_refused() -> None:
    store = MemoryStore()
    await save(store, 3)
    async with fed(store) as feeds:
        with pytest.raises(PositionNotFound):
            await feeds.resolve_position(4)
        assert await feeds.resolve_position(3) == 3


async def test_close_ends_every_feed() -> None:
    store = MemoryStore()
    await save(store, 2)
    async with fed(store) as feeds:
        waiting = [asyncio.ensure_future(_positions(rows_after(feeds, 0))) for _ in range(3)]
        await until(lambda: feeds.open == 3)
        feeds.close()
        async with asyncio.timeout(GUARD):
            assert all(found in ([], [1, 2]) for found in await asyncio.gather(*waiting))
            assert await _positions(rows_after(feeds, 0)) == []


async def _positions(rows: AsyncIterator[JournalRow]) -> list[int]:
    return [row.position async for row in rows]


async def test_feed_of_a_closed_store_fails() -> None:
    store = MemoryStore()
    async with fed(store) as feeds:
        waiting = asyncio.ensure_future(take(rows_after(feeds, None), 1))
        await until(lambda: feeds.open == 1)
        await store.aclose()
        feeds.wake()
        with pytest.raises(StoreClosed):
            async with asyncio.timeout(GUARD):
                await waiting
        await asyncio.sleep(0)


class FailingJournal(MemoryStore):
    """A memory store whose journal cannot be read while `broken` is set."""

    broken = False

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        if self.broken:
            raise StoreFailed(Path("/test"), "I/O error")
        return await super().journal(query)


async def test_feeds_continue_after_the_store_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FIRST_PAUSE", 0.0)
    store = FailingJournal()
    async with fed(store) as feeds, aclosing(rows_after(feeds, 0)) as rows:
        waiting = asyncio.ensure_future(take(rows, 1))
        await until(lambda: feeds.open == 1)
        for _ in range(10):
            await asyncio.sleep(0)
        store.broken = True
        await save(store, 1)
        with pytest.raises(StoreFailed):
            async with asyncio.timeout(GUARD):
                await waiting
        store.broken = False
        async with aclosing(rows_after(feeds, 0)) as again:
            assert await take(again, 1) == [1]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.integers(0, 7)),
        st.tuples(st.just("read"), st.integers(1, 9)),
        st.tuples(st.just("turn"), st.integers(1, 5)),
        st.tuples(st.just("leave"), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
@pytest.mark.parametrize("page", [1, 3])
def test_resumed_feed_skips_and_repeats_nothing(
    steps: Sequence[tuple[str, int]], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "FEED_PAGE", page)
    asyncio.run(_live_through(steps))


async def _live_through(steps: Sequence[tuple[str, int]]) -> None:
    store = MemoryStore()
    given: list[int] = []
    saved = 0
    async with fed(store) as feeds:
        rows = rows_after(feeds, 0)
        for what, count in steps:
            match what:
                case "save":
                    await save(store, count)
                    saved += count
                case "read":
                    given += await take(rows, min(count, saved - len(given)))
                case "turn":
                    for _ in range(count):
                        await asyncio.sleep(0)
                case _:
                    await rows.aclose()
                    rows = rows_after(feeds, given[-1] if given else 0)
        given += await take(rows, saved - len(given))
        await rows.aclose()
    assert given == list(range(1, saved + 1))


async def test_feed_continues_after_a_restart(tmp_path: Path) -> None:
    given: list[int] = []
    for life in range(4):
        store = await SqliteStore.open(tmp_path)
        async with fed(store) as feeds, aclosing(rows_after(feeds, given[-1] if given else 0)) as rows:
            for _ in range(3):
                await save(store, 5, f"scope-{life}")
            given += await take(rows, 11)  # the rest is unread when it ends
        await store.aclose()
    assert given == list(range(1, 45))


async def test_feed_has_rows_of_this_and_other_processes() -> None:
    store = MemoryStore()
    async with run_fleet(store=store) as fleet, aclosing(rows_after(fleet.journal, None)) as rows:
        waiting = asyncio.ensure_future(take(rows, 2))
        await until(lambda: fleet.journal.open == 1)
        for _ in range(10):
            await asyncio.sleep(0)
        await fleet.inventory.add_scope(web_scope(), by="test")
        term = LeaseHolder(term=1, holder="another process", process="1", taken_at=NOON)
        lease = RecordKey(RecordKind.LEASE, "elsewhere")
        await store.save(lease, lease_record.encode(term), entries(1), expected=None)
        assert await waiting == [1, 2]


async def test_positions_that_do_not_count_by_one_are_no_gap() -> None:
    """A feed that is up to date, one that begins early and one that continues get the same rows."""
    store = MemoryStore()
    async with fed(store) as feeds, aclosing(rows_after(feeds, None)) as live, asyncio.timeout(GUARD):
        first = asyncio.ensure_future(anext(live))
        await until(lambda: feeds.open == 1)
        for _ in range(5):
            store._position += 7
            await save(store, 2)
        whole = await store.journal(JournalQuery())
        assert [await first] + [await anext(live) for _ in whole[1:]] == whole
        for start, expected in ((0, whole), (whole[3].position, whole[4:]), (whole[3].position + 1, whole[4:])):
            async with aclosing(rows_after(feeds, start)) as rows:
                assert [await anext(rows) for _ in expected] == expected
