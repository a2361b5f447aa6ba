"""A watch is right in whatever order the snapshot's pages and the news of changes reach it."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, SnapshotEnd, WatchItem
from forewarn.store.watch import SnapshotPage, Watcher, Watchers

A, B, C = (RecordKey(RecordKind.SCOPE, name) for name in "abc")


def at(key: RecordKey, revision: int) -> Record:
    return Record(key, f"{key} {revision}".encode(), revision)


class Pages:
    """Pages that a test lays out, with what is published while each is being read."""

    def __init__(self, watchers: Watchers, *steps: tuple[Sequence[Record | Deleted], SnapshotPage]) -> None:
        self._watchers = watchers
        self._steps: Iterator[tuple[Sequence[Record | Deleted], SnapshotPage]] = iter(steps)

    async def read(self, _: int) -> SnapshotPage:
        published, page = next(self._steps)
        for change in published:
            self._watchers.publish(change)
        return page


async def take(watcher: Watcher, count: int) -> list[WatchItem]:
    async with asyncio.timeout(60):
        return [await anext(watcher) for _ in range(count)]


@pytest.fixture
def watchers() -> Watchers:
    return Watchers()


async def test_change_before_its_page_is_yielded_once(watchers: Watchers) -> None:
    pages = Pages(watchers, ([at(A, 7)], SnapshotPage([at(A, 7), at(B, 2)], as_of=7, next=None)))
    with watchers.subscribe(pages.read) as watcher:
        assert await take(watcher, 3) == [at(A, 7), at(B, 2), SnapshotEnd()]


async def test_change_that_the_page_already_has_is_not_repeated(watchers: Watchers) -> None:
    """The reader sees a commit before the writer's thread has told the loop of it."""
    pages = Pages(watchers, ([], SnapshotPage([at(A, 9)], as_of=9, next=None)))
    with watchers.subscribe(pages.read) as watcher:
        assert await take(watcher, 1) == [at(A, 9)]
        watchers.publish(at(A, 7))
        watchers.publish(at(A, 9))
        watchers.publish(at(B, 10))
        assert await take(watcher, 2) == [SnapshotEnd(), at(B, 10)]


async def test_change_that_the_page_already_has_is_not_repeated_after_the_snapshot(watchers: Watchers) -> None:
    pages = Pages(watchers, ([], SnapshotPage([at(A, 9)], as_of=9, next=None)))
    with watchers.subscribe(pages.read) as watcher:
        assert await take(watcher, 2) == [at(A, 9), SnapshotEnd()]
        watchers.publish(at(A, 7))
        watchers.publish(at(A, 9))
        watchers.publish(at(A, 11))
        assert await take(watcher, 1) == [at(A, 11)]


async def test_late_change_of_one_key_does_not_let_a_late_change_of_another_through(watchers: Watchers) -> None:
    pages = Pages(
        watchers, ([], SnapshotPage([at(B, 2)], as_of=2, next=1)), ([], SnapshotPage([at(A, 9)], as_of=9, next=None))
    )
    with watchers.subscribe(pages.read) as watcher:
        assert await take(watcher, 3) == [at(B, 2), at(A, 9), SnapshotEnd()]
        watchers.publish(at(B, 8))
        watchers.publish(at(A, 9))
        watchers.publish(at(C, 10))
        assert await take(watcher, 2) == [at(B, 8), at(C, 10)]


async def test_older_page_does_not_undo_a_yielded_change(watchers: Watchers) -> None:
    pages = Pages(
        watchers,
        ([Deleted(B, 5)], SnapshotPage([at(A, 1)], as_of=4, next=1)),
        ([], SnapshotPage([at(B, 3), at(C, 2)], as_of=4, next=None)),
    )
    with watchers.subscribe(pages.read) as watcher:
        assert await take(watcher, 4) == [Deleted(B, 5), at(A, 1), at(C, 2), SnapshotEnd()]


async def test_busy_writer_does_not_delay_the_end_of_the_snapshot(watchers: Watchers) -> None:
    pages = Pages(
        watchers, ([], SnapshotPage([at(A, 1)], as_of=1, next=1)), ([], SnapshotPage([at(B, 2)], as_of=100, next=None))
    )
    with watchers.subscribe(pages.read) as watcher:
        given: list[WatchItem] = []
        for revision in range(3, 9):
            watchers.publish(at(C, revision))
            given += await take(watcher, 1)
    assert SnapshotEnd() in given


async def test_pending_change_keeps_its_place_and_gets_the_newer_value(watchers: Watchers) -> None:
    pages = Pages(watchers, ([], SnapshotPage([], as_of=0, next=None)))
    with watchers.subscribe(pages.read) as watcher:
        await take(watcher, 1)
        for change in (at(A, 1), at(B, 2), at(A, 3), Deleted(A, 4), at(C, 5), at(A, 6)):
            watchers.publish(change)
        assert await take(watcher, 3) == [at(A, 6), at(B, 2), at(C, 5)]


async def test_watcher_keeps_nothing_of_the_snapshot_after_its_end(watchers: Watchers) -> None:
    pages = Pages(watchers, ([], SnapshotPage([at(A, 1), at(B, 2)], as_of=2, next=None)))
    with watchers.subscribe(pages.read) as watcher:
        await take(watcher, 3)
        watchers.publish(at(C, 3))
        assert watcher._seen_revisions == {}


async def test_page_that_arrives_after_the_watch_was_closed_is_dropped(watchers: Watchers) -> None:
    read = asyncio.Event()

    async def read_slowly(_: int) -> SnapshotPage:
        await read.wait()
        return SnapshotPage([at(A, 1)], as_of=1, next=None)

    with watchers.subscribe(read_slowly) as watcher:
        waiting = asyncio.ensure_future(anext(watcher, "ended"))
        await asyncio.sleep(0)
    read.set()
    assert await waiting == "ended"
