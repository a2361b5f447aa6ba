"""Faults on real sockets: the effect of each kind, the affected VMs, duration and number of hits."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.errors import Invalid, KeyConflict
from forewarn.core.fault import Fault, FaultKind
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import FaultNotFound, SaveFailed
from forewarn.guest.connection_state import ConnectionState
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import FailingStore, read_journal, until
from tests.guest.running_endpoint import (
    EMPTY,
    EVENTS,
    GET,
    Peer,
    approval,
    reboot,
    request,
    run_endpoint,
)

LONG = timedelta(minutes=2)


async def told(store: MemoryStore) -> list[tuple[str, EntryKind, str, str, dict[str, str]]]:
    """Return the journal entries of faults: scope, kind, actor, reason and facts."""
    of_faults = (EntryKind.FAULT_SET, EntryKind.FAULT_CLEARED, EntryKind.FAULT_ENDED)
    rows = [row for row in await read_journal(store) if row.entry.kind in of_faults]
    return [(row.key.id, row.entry.kind, row.entry.by, row.entry.why, row.entry.facts) for row in rows]


async def test_late_first_answer_delays_requests_until_the_first_response() -> None:
    async with run_endpoint() as endpoint:
        first, second = await endpoint.connect(), await endpoint.connect()
        await endpoint.faults.set(FaultKind.LATE_FIRST_ANSWER, vm="web-0", amount=timedelta(milliseconds=50), by="test")
        other = await (await endpoint.connect("web/web-1")).request()
        assert other.status == 200
        loop = asyncio.get_running_loop()
        began = loop.time()
        first.send(GET)
        second.send(GET)
        assert [(await peer.read_response()).status for peer in (first, second)] == [200, 200]
        assert loop.time() - began >= 0.049
        await until(lambda: not endpoint.faults.list())


async def test_hang_holds_the_connection_until_the_fault_is_cleared() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        fault = await endpoint.faults.set(FaultKind.HANG, times=1, by="test")
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        endpoint.tick_seconds(3600)
        assert endpoint.connection_states() == [ConnectionState.RESPONDING]
        # The number of hits is reached, but the fault stays active for the request that it delays.
        assert (await (await endpoint.connect()).request()).status == 200
        assert [each.hits for each in endpoint.faults.list()] == [1]
        await endpoint.faults.clear(fault.id, by="test")
        assert (await peer.read_response()).body == EMPTY
        assert (await peer.request()).body == EMPTY


async def test_hang_ends_when_the_fault_expires() -> None:
    clock = ManualClock(TEN)
    store = MemoryStore()
    async with run_endpoint(clock=clock, store=store) as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.HANG, vm="web-0", lasting=timedelta(seconds=30), by="test")
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        await endpoint.fleet.time.advance(timedelta(seconds=29))
        assert len(endpoint.faults.list()) == 1
        await endpoint.fleet.time.advance(timedelta(seconds=1))
        assert endpoint.faults.list() == ()
        assert (await peer.read_response()).body == EMPTY
        *_, last = await told(store)
    facts = {"fault": "F1", "kind": "hang", "vm": "web/web-0", "until": "2026-03-02T10:00:30Z", "hits": "1"}
    assert last == ("web", EntryKind.FAULT_ENDED, "faults", "it expired", facts)


def leave(peer: Peer) -> None:
    peer.writer.close()


@pytest.mark.parametrize("go", [leave, Peer.reset])
async def test_hang_ends_when_the_client_leaves(go: Callable[[Peer], None], caplog: pytest.LogCaptureFixture) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.HANG, times=1, by="test")
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        go(peer)
        await until(lambda: endpoint.counters.connections == 0)
        await until(lambda: not endpoint.faults.list())
        assert endpoint.counters.failures == 0
    assert caplog.records == []


async def test_fault_of_one_vm_does_not_affect_others() -> None:
    async with run_endpoint() as endpoint:
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web/web-0", by="test")
        assert (await (await endpoint.connect("web/web-0")).request()).status == 410
        assert (await (await endpoint.connect("web/web-1")).request()).status == 200


async def test_fault_of_all_vms_counts_hits_over_all_vms() -> None:
    async with run_endpoint() as endpoint:
        zero, one = await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")
        await endpoint.faults.set(FaultKind.STATUS_410, times=3, by="test")
        statuses = [(await peer.request()).status for peer in (zero, one, zero, one, zero)]
    assert statuses == [410, 410, 410, 200, 200]


async def test_faults_with_the_same_effect_apply_in_order_and_others_combine() -> None:
    async with run_endpoint(clock=ManualClock(TEN)) as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.STATUS_410, times=2, by="test")
        await endpoint.faults.set(FaultKind.STATUS_500, times=1, by="test")
        await endpoint.faults.set(FaultKind.WRONG_DATE, times=3, by="test")
        await endpoint.faults.set(FaultKind.SLOW, amount=timedelta(milliseconds=1), times=1, by="test")
        seen = [(answer.status, answer.headers["date"]) for answer in [await peer.request() for _ in range(4)]]
    late, right = "Mon, 02 Mar 2026 11:00:00 GMT", "Mon, 02 Mar 2026 10:00:00 GMT"
    assert seen == [(410, late), (410, late), (500, late), (200, right)]


async def test_journal_records_faults() -> None:
    store = MemoryStore()
    async with run_endpoint(store=store, clock=ManualClock(TEN)) as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", times=1, by="ann", why="does it ask again?")
        await endpoint.faults.set(FaultKind.SLOW, lasting=timedelta(minutes=1), by="ann")
        await endpoint.faults.clear("f2", by="bob", why="enough")
        assert (await peer.request()).status == 410
        await until(lambda: not endpoint.faults.list() and not endpoint.fleet.emulator.timers.busy)
        lines = await told(store)
    one = {"fault": "F1", "kind": "status-410", "vm": "web/web-0", "times": "1"}
    two = {"fault": "F2", "kind": "slow", "vm": "all", "amount": "5s", "until": "2026-03-02T10:01:00Z"}
    assert lines == [
        ("web", EntryKind.FAULT_SET, "ann", "does it ask again?", one),
        ("ledger", EntryKind.FAULT_SET, "ann", "", two),
        ("ledger", EntryKind.FAULT_CLEARED, "bob", "enough", {**two, "hits": "0"}),
        ("web", EntryKind.FAULT_ENDED, "faults", "it reached its number of hits", {**one, "hits": "1"}),
    ]


async def test_fault_is_not_set_if_its_journal_entry_cannot_be_saved() -> None:
    store = FailingStore()
    async with run_endpoint(store=store) as endpoint:
        store.full = True
        with pytest.raises(SaveFailed):
            await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", by="test")
        assert endpoint.faults.list() == ()
        store.full = False
        assert (await (await endpoint.connect()).request()).status == 200


async def test_fault_is_not_cleared_if_its_journal_entry_cannot_be_saved() -> None:
    """The operator gets an error and can repeat the request when the store works again."""
    store = FailingStore()
    async with run_endpoint(store=store) as endpoint:
        for vm in ("web-0", None):
            await endpoint.faults.set(FaultKind.STATUS_410, vm=vm, by="test")
        store.full = True
        with pytest.raises(SaveFailed):
            await endpoint.faults.clear("F1", by="test")
        with pytest.raises(SaveFailed):
            await endpoint.faults.clear_all(by="test")
        assert [fault.id for fault in endpoint.faults.list()] == ["F1", "F2"]
        assert (await (await endpoint.connect()).request()).status == 410
        store.full = False
        assert [fault.id for fault in await endpoint.faults.clear_all(by="test")] == ["F1", "F2"]
        assert (await (await endpoint.connect()).request()).status == 200
    assert [(did, facts["hits"]) for _, did, _, _, facts in (await told(store))[2:]] == [
        (EntryKind.FAULT_CLEARED, "1"),
        (EntryKind.FAULT_CLEARED, "0"),
    ]


async def test_end_of_a_fault_is_recorded_later_if_it_cannot_be_saved(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = FailingStore(), ManualClock(TEN)
    async with run_endpoint(store=store, clock=clock) as endpoint:
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", times=1, by="test")
        peer = await endpoint.connect()
        store.full = True
        assert (await peer.request()).status == 410
        await until(lambda: "could not save the end of fault F1" in caplog.text)
        assert (await peer.request()).status == 200
        with pytest.raises(SaveFailed):
            await endpoint.faults.set(FaultKind.STATUS_500, vm="web-0", by="test")
        store.full = False
        await endpoint.fleet.time.advance(timedelta(minutes=1))
        await endpoint.faults.set(FaultKind.STATUS_500, vm="web-0", by="test")
    assert [(did, why) for _, did, _, why, _ in await told(store)] == [
        (EntryKind.FAULT_SET, ""),
        (EntryKind.FAULT_ENDED, "it reached its number of hits; ended at 2026-03-02T10:00:00Z"),
        (EntryKind.FAULT_SET, ""),
    ]


async def test_fault_of_a_removed_scope_can_be_cleared() -> None:
    async with run_endpoint() as endpoint:
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", by="test")
        await endpoint.fleet.inventory.remove_scope("web", by="test")
        assert [fault.id for fault in await endpoint.faults.clear_all(by="test")] == ["F1"]
        assert endpoint.faults.list() == ()


async def test_same_key_sets_and_clears_once() -> None:
    async with run_endpoint() as endpoint:
        key = IdempotencyKey("k", "d")
        first = await endpoint.faults.set(FaultKind.STATUS_410, by="test", idempotency_key=key)
        assert await endpoint.faults.set(FaultKind.STATUS_410, by="test", idempotency_key=key) == first
        assert len(endpoint.faults.list()) == 1
        with pytest.raises(KeyConflict):
            await endpoint.faults.set(FaultKind.SLOW, by="test", idempotency_key=IdempotencyKey("k", "other"))
        for _ in range(2):
            await endpoint.faults.clear(first.id, by="test", idempotency_key=IdempotencyKey("c", "d"))
        with pytest.raises(FaultNotFound):
            await endpoint.faults.clear(first.id, by="test")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda faults: faults.set(FaultKind.SLOW, times=0, by="t"), "times must be 1 to 1000000 requests, got 0"),
        (
            lambda faults: faults.set(FaultKind.SLOW, lasting=timedelta(0), by="t"),
            "the duration of a fault must be positive",
        ),
        (
            lambda faults: faults.set(FaultKind.LATE_FIRST_ANSWER, amount=timedelta(minutes=3), by="t"),
            "the amount of late-first-answer must be at most 2m, got 3m",
        ),
        (
            lambda faults: faults.set(FaultKind.SLOW, amount=-LONG, by="t"),
            "the amount of slow must be positive, got -2m",
        ),
        (
            lambda faults: faults.set(FaultKind.SLOW, amount=timedelta(0), by="t"),
            "the amount of slow must be positive, got 0s",
        ),
        (
            lambda faults: faults.set(FaultKind.WRONG_DATE, amount=timedelta(0), by="t"),
            "the amount of wrong-date must not be 0: use a positive or a negative duration",
        ),
        (
            lambda faults: faults.set(FaultKind.RESET, amount=LONG, by="t"),
            "reset has no amount: only slow, late-first-answer, wrong-date have one",
        ),
    ],
)
async def test_invalid_faults_are_refused(make: Callable[[object], Awaitable[Fault]], sentence: str) -> None:
    async with run_endpoint() as endpoint:
        with pytest.raises(Invalid) as refusal:
            await make(endpoint.faults)
        assert (str(refusal.value), endpoint.faults.list()) == (sentence, ())


@pytest.mark.parametrize("seed", range(6))
async def test_random_faults_leave_nothing_behind(seed: int) -> None:
    """Random faults on random connections; the seed is in the test's name."""
    chance = random.Random(seed)
    async with run_endpoint(clock=ManualClock(TEN)) as endpoint:
        event = await reboot(endpoint)
        for _ in range(60):
            match chance.randrange(4):
                case 0:
                    await endpoint.faults.set(
                        chance.choice(list(FaultKind)),
                        vm=chance.choice([None, "web-0", "web-1"]),
                        times=chance.choice([None, 1, 3]),
                        lasting=chance.choice([None, timedelta(seconds=5)]),
                        by="test",
                    )
                case 1:
                    await endpoint.fleet.time.advance(timedelta(seconds=chance.randrange(4)))
                case 2 if found := endpoint.faults.list():
                    await endpoint.faults.clear(chance.choice(found).id, by="test")
                case _:
                    peer = await endpoint.connect(f"web/web-{chance.randrange(2)}")
                    peer.send(chance.choice([GET, GET * 3, request("POST", body=approval(event))]))
                    await asyncio.sleep(0)
                    if chance.random() < 0.3:
                        chance.choice([leave, Peer.reset])(peer)
        await endpoint.faults.clear_all(by="test")
        await until(lambda: not endpoint.fleet.emulator.timers.busy)
        assert (endpoint.faults.list(), endpoint.fleet.emulator.timers.waiting, endpoint.counters.failures) == (
            (),
            0,
            0,
        )
        for name in ("web/web-0", "web/web-1"):
            assert (await (await endpoint.connect(name)).request()).status == 200


async def test_shutdown_does_not_wait_for_faults() -> None:
    async with run_endpoint() as endpoint:
        hung, slow = await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")
        await endpoint.faults.set(FaultKind.HANG, vm="web-0", by="test")
        await endpoint.faults.set(FaultKind.SLOW, vm="web-1", amount=LONG, by="test")
        for peer in (hung, slow):
            peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING] * 2)
        await endpoint.server.aclose()
        for peer in (hung, slow):
            answer = await peer.read_response()
            assert (answer.body, answer.headers["connection"]) == (EMPTY, "close")


async def test_waiting_long_poll_is_not_affected_and_a_later_one_is_delayed() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        etag = (await peer.request()).headers["etag"]
        held = request("GET", f"{EVENTS}&wait=60", ("If-None-Match", etag))
        peer.send(held)
        await until(lambda: endpoint.counters.long_polls == 1)
        slow = await endpoint.faults.set(FaultKind.SLOW, amount=LONG, by="test")
        other = await endpoint.connect()
        other.send(held)
        await until(lambda: [fault.hits for fault in endpoint.faults.list()] == [1])
        assert endpoint.counters.long_polls == 1
        await endpoint.faults.clear(slow.id, by="test")
        await until(lambda: endpoint.counters.long_polls == 2)
        await endpoint.faults.set(FaultKind.STATUS_410, by="test")
        await reboot(endpoint)
        assert [(await each.read_response()).status for each in (peer, other)] == [200, 200]
        assert (await peer.request(held)).status == 410


@pytest.mark.parametrize("kind", [FaultKind.SLOW, FaultKind.LATE_FIRST_ANSWER])
@pytest.mark.parametrize("go", [leave, Peer.reset])
async def test_delayed_response_of_a_disconnected_client_frees_its_connection(
    go: Callable[[Peer], None], kind: FaultKind, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that times out after a second and polls again must not run out of connections."""
    async with run_endpoint() as endpoint:
        await endpoint.faults.set(kind, vm="web-0", amount=LONG, by="test")
        for hits in (1, 2, 3):
            peer = await endpoint.connect()
            peer.send(GET)
            await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
            assert [fault.hits for fault in endpoint.faults.list()] == [hits]
            go(peer)
            await until(lambda: endpoint.counters.connections == 0)
        assert (len(endpoint.faults.list()), endpoint.counters.failures) == (1, 0)
    assert caplog.records == []


async def test_hang_after_a_delay_is_skipped_if_that_fault_has_ended() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        slow = await endpoint.faults.set(FaultKind.SLOW, amount=LONG, by="test")
        hang = await endpoint.faults.set(FaultKind.HANG, by="test")
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        await endpoint.faults.clear(hang.id, by="test")
        await endpoint.faults.clear(slow.id, by="test")
        assert (await peer.read_response()).body == EMPTY


async def test_concurrent_requests_are_counted_exactly() -> None:
    async with run_endpoint() as endpoint:
        peers = [await endpoint.connect(f"web/web-{n % 2}") for n in range(30)]
        await endpoint.faults.set(FaultKind.SLOW, amount=timedelta(milliseconds=1), times=7, by="test")
        await endpoint.faults.set(FaultKind.STATUS_429, times=11, by="test")
        for peer in peers:
            peer.send(GET)
        statuses = [(await peer.read_response()).status for peer in peers]
        await until(lambda: not endpoint.faults.list())
    assert (statuses.count(429), statuses.count(200)) == (11, 19)
