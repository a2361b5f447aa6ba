"""The hold on the whole fleet as a record: its rules, its guards, and requests with a key."""

from functools import partial

import pytest

from forewarn.core.errors import Invalid, KeyConflict
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Hold, SeenKey
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.hold_record import FLEET_HOLD, FleetHold, HoldRecord, clear_hold, decode, encode, set_hold
from forewarn.fleet.main_loop import Decision, MainLoop
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import read_journal

HOLD = Hold(by="ann", at=TEN, reason="audit")
SET = partial(set_hold, by="ann", reason="audit", now=TEN)
CLEAR = partial(clear_hold, by="bob", why="over", now=TEN)


def test_hold_and_its_release_are_in_the_journal() -> None:
    assert SET(FleetHold()) == Decision(
        FleetHold(entries=1, hold=HOLD), (Entry(n=1, at=TEN, kind=EntryKind.HELD, by="ann", why="audit"),), None
    )
    assert CLEAR(FleetHold(entries=1, hold=HOLD)) == Decision(
        FleetHold(entries=2), (Entry(n=2, at=TEN, kind=EntryKind.RELEASED, by="bob", why="over"),), None
    )


def test_release_without_a_hold_changes_nothing() -> None:
    assert CLEAR(FleetHold(entries=2)) == Decision(FleetHold(entries=2), (), None)


@pytest.mark.parametrize("reason", ["", "\t "])
def test_hold_needs_a_reason(reason: str) -> None:
    with pytest.raises(Invalid):
        set_hold(FleetHold(), by="ann", reason=reason, now=TEN)


def test_hold_is_decoded_as_it_was_encoded() -> None:
    value = FleetHold(entries=1, hold=HOLD, seen_keys=(SeenKey(key="k", request="", at=TEN, digest="d"),))
    assert decode(encode(value)) == value
    assert b'"held":' in encode(value)
    assert b'"answered":' in encode(value)


async def test_record_has_the_newest_hold_and_guards_at_its_revision() -> None:
    store = MemoryStore()
    async with store.watch() as changes, tasks_until_exit() as tasks:
        loop = MainLoop(store, tasks, on_followed=lambda: None)
        record = HoldRecord(loop)
        await loop.fill(changes)
        assert (record.current, record.guards) == (None, {FLEET_HOLD: None})
        await record.apply(CLEAR, None, now=TEN)
        assert await store.load(FLEET_HOLD) is None, "a release without a hold saves nothing"
        await record.apply(SET, None, now=TEN)
        saved = await store.load(FLEET_HOLD)
        assert saved is not None
        assert (record.current, record.guards) == (HOLD, {FLEET_HOLD: saved.revision})
        await record.apply(CLEAR, None, now=TEN)
        assert record.current is None
        assert record.guards != {FLEET_HOLD: saved.revision}


async def test_repeated_request_has_no_further_effect() -> None:
    store, key = MemoryStore(), IdempotencyKey("k", "digest")
    async with store.watch() as changes, tasks_until_exit() as tasks:
        loop = MainLoop(store, tasks, on_followed=lambda: None)
        record = HoldRecord(loop)
        await loop.fill(changes)
        await record.apply(SET, key, now=TEN)
        await record.apply(CLEAR, None, now=TEN)
        await record.apply(SET, key, now=TEN)
        assert record.current is None
        with pytest.raises(KeyConflict):
            await record.apply(SET, IdempotencyKey("k", "other"), now=TEN)
    assert [row.entry.kind for row in await read_journal(store)] == [EntryKind.HELD, EntryKind.RELEASED]
