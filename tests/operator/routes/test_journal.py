"""The journal through the API: filters, pages, and entries of removed objects."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.journal import Entry, EntryKind
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, JournalRow, RecordKey, RecordKind, StoreFailed
from tests.operator.running_api import TEN, RunningApi, run_api


async def ask(service: RunningApi, query: str, token: str | None = None) -> v1.JournalPage:
    more = {} if token is None else {"token": token}
    reply = await service.request("GET", f"/v1/journal?{query}", **more)
    assert reply.status == 200, reply.json
    return msgspec.json.decode(reply.body, type=v1.JournalPage)


async def live(service: RunningApi) -> str:
    """Run a Freeze of web-0 to its end and set a hold. Return the event."""
    made = await service.client(
        lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["web-0"], reason="ticket 7"))
    )
    await service.client(lambda api: api.hold(v1.CreateHold(scope="shop", reason="closing")))
    await service.fleet.time.advance(timedelta(hours=1))
    return made.created[0].id


def dids(page: v1.JournalPage) -> list[str]:
    return [entry.action.value for entry in page.entries]


OF_THE_EVENT = ["scheduled", "started", "impact-begun", "impact-done", "completed"]


async def test_why_a_vm_paused_is_one_query() -> None:
    async with run_api() as service:
        await live(service)
        page = await ask(service, "vm=web-0&since=2026-03-02T10:10:00Z&until=2026-03-02T10:20:00Z")
    assert [(entry.action.value, entry.at, entry.actor) for entry in page.entries] == [
        ("started", TEN + timedelta(minutes=15), "clock"),
        ("impact-begun", TEN + timedelta(minutes=15), "platform"),
        ("impact-done", TEN + timedelta(minutes=15, seconds=5), "platform"),
        ("completed", TEN + timedelta(minutes=15, seconds=5), "platform"),
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("scope=web", ["scope-created", *OF_THE_EVENT]),
        ("scope=shop", ["scope-created", "held"]),
        ("vm=web-0&action=scheduled&action=completed", ["scheduled", "completed"]),
        ("action=held", ["held"]),
        ("scope=web&actor=admin", ["scheduled"]),
        ("vm=web/web-0&actor=platform", ["impact-begun", "impact-done", "completed"]),
        ("vm=WEB-0&action=started", ["started"]),
        ("scope=shop&vm=web/web-0", []),
        ("scope=nowhere", []),
        ("scope=web&since=2026-03-02T12:20:00%2B02:00&until=2026-03-02T10:30:00Z", []),
        ("vm=web-0&action=started&since=2026-03-02T12:15:00%2B02:00", ["started"]),
    ],
)
async def test_entries_are_filtered(query: str, expected: list[str]) -> None:
    async with run_api() as service:
        await live(service)
        assert dids(await ask(service, query)) == expected


async def test_event_filter_is_case_insensitive() -> None:
    async with run_api() as service:
        event = await live(service)
        assert dids(await ask(service, f"event={event.lower()}")) == OF_THE_EVENT


@pytest.mark.parametrize("order", ["", "&newest_first=true"])
@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
async def test_pages_contain_every_entry_once(order: str, limit: int) -> None:
    async with run_api() as service:
        await live(service)
        whole = await ask(service, f"limit=1000{order}")
        assert whole.next is None
        positions = [entry.position for entry in whole.entries]
        assert positions == sorted(positions, reverse=bool(order))
        seen: list[v1.JournalEntry] = []
        after: str | None = ""
        while after is not None:
            page = await ask(service, f"limit={limit}{order}&after={after}")
            assert len(page.entries) <= limit
            seen += page.entries
            after = page.next
    assert seen == list(whole.entries)


async def test_client_reads_every_page() -> None:
    async with run_api() as service:
        await live(service)
        lines = await service.client(lambda api: list(api.journal(vm="web-0", newest_first=True)))
        kinds = await service.client(
            lambda api: list(api.journal(vm="web-0", actions=(EntryKind.SCHEDULED, EntryKind.COMPLETED)))
        )
        assert [line.action for line in kinds] == [EntryKind.SCHEDULED, EntryKind.COMPLETED]
    assert [line.action.value for line in lines][:5] == OF_THE_EVENT[::-1]


async def test_bare_name_of_several_removed_vms_is_ambiguous_and_an_existing_vm_comes_first() -> None:
    async with run_api() as service:
        for scope in ("web", "shop"):
            await service.client(partial(ApiClient.add_vm, request=v1.AddVm(name="twice", scope=scope)))
            await service.client(partial(ApiClient.delete, request=v1.Operate(vm=f"{scope}/twice")))
        refused = await service.request("GET", "/v1/journal?vm=twice")
        assert (refused.status, refused.code) == (409, "ambiguous-vm")
        await service.client(lambda api: api.add_vm(v1.AddVm(name="twice", scope="batch")))
        found = await ask(service, "vm=twice&action=vm-added")
    assert [entry.record_id for entry in found.entries] == ["batch"]


async def test_name_that_no_vm_ever_had_is_not_found() -> None:
    async with run_api() as service:
        bare = await service.request("GET", "/v1/journal?vm=nothing")
    assert (bare.status, bare.code) == (404, "vm-not-found")
    assert bare.json["error"]["message"].startswith("there is no VM nothing, and the journal has no removal of one")


async def test_removed_vm_has_journal_entries_by_its_name() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.delete(v1.Operate(vm="web-0", reason="too many")))
        by_bare_name = await ask(service, "vm=WEB-0&action=vm-removed")
        by_full_name = await ask(service, "vm=web/web-0&action=vm-removed")
        by_scope = await ask(service, "scope=web&vm=web-0&action=vm-removed")
    assert [(entry.actor, entry.reason, entry.vms) for entry in by_full_name.entries] == [
        ("admin", "too many", ["web-0"])
    ]
    assert by_full_name == by_scope == by_bare_name


async def test_removed_scope_has_journal_entries() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.remove_scope("db-0", reason="sold"))
        page = await ask(service, "scope=db-0&newest_first=true&limit=1")
    assert [(entry.action, entry.reason) for entry in page.entries] == [(EntryKind.SCOPE_REMOVED, "sold")]


async def test_token_reads_only_entries_of_its_scopes() -> None:
    async with run_api() as service:
        event = await live(service)
        await service.client(lambda api: api.hold(v1.CreateHold(reason="audit")))
        shop = await service.token("shop-only", Role.VIEWER, "sh*")
        for order in ("", "&newest_first=true"):
            page = await ask(service, f"limit=1000{order}", token=shop)
            assert {(entry.record_kind, entry.record_id) for entry in page.entries} == {("scope", "shop")}
            assert sorted(dids(page)) == ["held", "scope-created"]
            first = await ask(service, f"limit=1{order}", token=shop)
            second = await ask(service, f"limit=1{order}&after={first.next}", token=shop)
            assert [*first.entries, *second.entries] == list(page.entries)
        assert (await ask(service, f"event={event}", token=shop)).entries == []
        for query in ("scope=web", "vm=web/web-0"):
            reply = await service.request("GET", f"/v1/journal?{query}", token=shop)
            assert (reply.status, reply.code) == (403, "scope-forbidden")


async def test_long_search_is_bounded_and_returns_next() -> None:
    lines = tuple(Entry(n=number, at=TEN, kind=EntryKind.VM_CHANGED, by="test") for number in range(1, 12_001))
    async with run_api() as service:
        shop = await service.token("shop-only", Role.VIEWER, "shop")
        await service.store.save(RecordKey(RecordKind.FLEET, "other"), b"{}", lines, expected=None)
        await service.client(lambda api: api.hold(v1.CreateHold(scope="shop", reason="closing")))
        pages = [await ask(service, "action=vm-changed&action=held", token=shop)]
        while pages[-1].next is not None:
            pages.append(await ask(service, f"action=vm-changed&action=held&after={pages[-1].next}", token=shop))
    assert [dids(page) for page in pages] == [[], ["held"]]


async def test_unreadable_journal_is_reported() -> None:
    class Unreadable(MemoryStore):
        async def journal(self, query: JournalQuery) -> list[JournalRow]:
            raise StoreFailed(Path("forewarn.db"), "disk I/O error")

    async with run_api(store=Unreadable()) as service:
        reply = await service.request("GET", "/v1/journal")
    assert (reply.status, reply.code) == (503, "store-unavailable")
    assert "forewarn.db" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("since=2026-03-02T10:00:00", 400, "invalid-request"),
        ("since=0.5", 400, "invalid-request"),
        ("until=yesterday", 400, "invalid-request"),
        ("action=exploded", 400, "invalid-request"),
        ("after=-1", 400, "invalid-request"),
        ("after=x", 400, "invalid-request"),
        ("limit=0", 400, "invalid-request"),
        ("limit=1001", 400, "invalid-request"),
        ("newest=true", 400, "invalid-request"),
        ("vm=nothing", 404, "vm-not-found"),
    ],
)
async def test_invalid_query_is_refused(query: str, status: int, code: str) -> None:
    async with run_api() as service:
        reply = await service.request("GET", f"/v1/journal?{quote(query, safe='=&:')}")
    assert (reply.status, reply.code) == (status, code)
