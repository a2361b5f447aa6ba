"""Queries of the journal by scope, VM, event, actor and time."""

from datetime import timedelta

import pytest

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import AmbiguousVm, VmNotFound
from forewarn.fleet.journal import journal_query
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import run_fleet

WEB = RecordKey(RecordKind.SCOPE, "web")


async def test_journal_of_a_vm_shows_why_it_paused() -> None:
    async with run_fleet(web_scope(), store=MemoryStore()) as fleet:
        await fleet.holds.set(by="ada", reason="audit", scope="web")
        await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0", notice=timedelta(minutes=15)))
        await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-1", number=2, notice=timedelta(minutes=15)))
        await fleet.time.advance(timedelta(minutes=20))
        await fleet.holds.release(by="ada", scope="web", why="audit is over")
        await fleet.time.advance(timedelta(minutes=1))
        query = journal_query(fleet.replica, vm="WEB-0", since=TEN, until=TEN + timedelta(hours=1))
        rows = await fleet.journal.query(query)
    assert [(row.entry.kind, row.entry.by) for row in rows] == [
        (EntryKind.SCOPE_CREATED, "test"),
        (EntryKind.HELD, "ada"),
        (EntryKind.SCHEDULED, "operator:test"),
        (EntryKind.RELEASED, "ada"),
        (EntryKind.STARTED, "clock"),
        (EntryKind.IMPACT_BEGUN, "platform"),
        (EntryKind.IMPACT_DONE, "platform"),
        (EntryKind.COMPLETED, "platform"),
    ]


async def test_request_is_converted_to_a_query() -> None:
    async with run_fleet(web_scope()) as fleet:
        assert journal_query(fleet.replica) == JournalQuery(limit=100)
        assert journal_query(fleet.replica, vm="web-0") == JournalQuery(key=WEB, vm="web-0", limit=100)
        assert journal_query(fleet.replica, event="abc") == JournalQuery(event="ABC", limit=100)
        assert journal_query(fleet.replica, scope="web", kinds=(EntryKind.HELD,), by="ada", limit=5) == JournalQuery(
            key=WEB, kinds=(EntryKind.HELD,), by="ada", limit=5
        )


async def test_next_page_continues_where_the_last_one_ended() -> None:
    async with run_fleet(web_scope()) as fleet:
        assert journal_query(fleet.replica, page=7) == JournalQuery(after=7, limit=100)
        assert journal_query(fleet.replica, page=7, newest_first=True) == JournalQuery(
            before=7, newest_first=True, limit=100
        )
        assert journal_query(fleet.replica, newest_first=True) == JournalQuery(newest_first=True, limit=100)


async def test_removed_vm_has_journal_rows() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.inventory.remove_vm("web", "web-5", by="ada", why="old")
        rows = await fleet.journal.query(journal_query(fleet.replica, vm="web/web-5", kinds=(EntryKind.VM_REMOVED,)))
        assert [row.entry.why for row in rows] == ["old"]
        assert journal_query(fleet.replica, scope="web", vm="web-5") == journal_query(fleet.replica, vm="web/web-5")
        with pytest.raises(VmNotFound):
            journal_query(fleet.replica, vm="web-5")


async def test_bare_name_must_be_unambiguous() -> None:
    async with run_fleet(scope("a", vm("same")), scope("b", vm("same"))) as fleet:
        with pytest.raises(AmbiguousVm):
            journal_query(fleet.replica, vm="same")
