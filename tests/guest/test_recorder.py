"""The recorder: exchanges of watched VMs, bounded; other VMs are served as fast as always."""

from typing import Any

import pytest

from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.guest import recorder as module
from forewarn.guest.observer import Observed
from forewarn.guest.recorder import WATCH_TICKS, RequestRecorder
from forewarn.wire.exchange import Exchange
from tests.core.sample_scopes import TEN, schedule_request
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EMPTY, EVENTS, GET, approval, request, run_endpoint

VM, OTHER = "web/web-0", "web/web-1"


def seen(number: int, answer: bytes = b"", status: int | None = 200, vm: str = VM) -> Observed:
    return Observed(number=number, vm=vm, at=0.0, wall=TEN, method="GET", target=EVENTS, status=status, answer=answer)


def facts(exchanges: tuple[Exchange, ...]) -> list[tuple[Any, ...]]:
    return [(each.id, each.number, each.count, each.status, each.answer) for each in exchanges]


async def test_nothing_is_recorded_before_somebody_looks() -> None:
    recorder = RequestRecorder(keeps_bytes=True)
    async with run_endpoint(recorder=recorder) as endpoint:
        peer = await endpoint.connect()
        for _ in range(3):
            await peer.request()
        assert recorder.watch(VM) == (0, ())
        await peer.request()
        ((number, exchanges),) = [recorder.watch(VM)]
        assert (number, facts(exchanges)) == (1, [(1, 1, 1, 200, EMPTY)])


async def test_requests_of_a_watched_vm_are_kept_with_their_bytes_on_old_and_new_connections() -> None:
    recorder = RequestRecorder(keeps_bytes=True)
    async with run_endpoint(recorder=recorder) as endpoint:
        old = await endpoint.connect()
        await old.request()
        await old.request()
        recorder.watch(VM)
        answer = await old.request()
        new = await endpoint.connect()
        await new.request()
        await new.request()
        (poll,) = recorder.watch(VM).exchanges
        assert (poll.count, poll.method, poll.target, poll.status, poll.answer) == (3, "GET", EVENTS, 200, answer.body)
        assert poll.raw_request == GET
        assert poll.raw_answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert poll.raw_answer.endswith(b"\r\n\r\n" + answer.body)


async def test_request_that_arrives_in_pieces_is_whole() -> None:
    recorder = RequestRecorder(keeps_bytes=True)
    async with run_endpoint(recorder=recorder) as endpoint:
        recorder.watch(VM)
        peer = await endpoint.connect()
        post = request("POST", EVENTS, body=approval("00000000-0000-0000-0000-000000000000"))
        for piece in (post[:10], post[10:-5], post[-5:]):
            peer.send(piece)
            await peer.writer.drain()
        await peer.read_response()
        (sent,) = recorder.watch(VM).exchanges
        assert (sent.raw_request, sent.status) == (post, 400)


async def test_other_vms_are_answered_from_the_cache_and_not_recorded() -> None:
    recorder = RequestRecorder()
    async with run_endpoint(recorder=recorder) as endpoint:
        recorder.watch(VM)
        peer = await endpoint.connect(OTHER)
        await peer.request()
        await peer.request()
        (connection,) = endpoint.connections()
        assert connection._session.cached_request == GET
        assert recorder.watch(VM) == (0, ())


async def test_approvals_and_faults_are_recorded() -> None:
    recorder = RequestRecorder()
    async with run_endpoint(recorder=recorder) as endpoint:
        recorder.watch(VM)
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, VM))
        peer = await endpoint.connect()
        await peer.post(approval(event))
        await endpoint.faults.set(
            FaultKind.STATUS_410, vm=VM, lasting=None, times=1, amount=None, by="test", why="", idempotency_key=None
        )
        await peer.request()
        await endpoint.faults.set(
            FaultKind.RESET, vm=VM, lasting=None, times=1, amount=None, by="test", why="", idempotency_key=None
        )
        peer.send(GET)
        await peer.read_until_close()
        approved, gone, reset = recorder.watch(VM).exchanges
        assert (approved.method, approved.approved, approved.status) == ("POST", (event,), 200)
        assert (gone.status, reset.status, reset.raw_request) == (410, None, b"")


async def test_response_that_waits_replaces_its_request() -> None:
    recorder = RequestRecorder()
    async with run_endpoint(recorder=recorder) as endpoint:
        recorder.watch(VM)
        peer = await endpoint.connect()
        await peer.request()
        etag = (await peer.request()).headers["etag"]
        peer.send(request("GET", f"{EVENTS}&wait=60", ("If-None-Match", etag)))
        await until(lambda: len(recorder.watch(VM).exchanges) == 2)
        assert recorder.watch(VM).exchanges[1].status is None
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, VM))
        await peer.read_response()
        assert [each.status for each in recorder.watch(VM).exchanges] == [200, 200]


def test_equal_exchanges_in_a_row_are_one() -> None:
    recorder = RequestRecorder()
    recorder.watch(VM)
    for number, answer in enumerate((b"a", b"a", b"a", b"b", b"a"), 1):
        recorder.record(seen(number, answer))
    assert facts(recorder.watch(VM).exchanges) == [(1, 3, 3, 200, b"a"), (4, 4, 1, 200, b"b"), (5, 5, 1, 200, b"a")]
    assert recorder.watch(VM).version == 5


def test_waiting_request_joins_equal_ones_when_it_is_answered() -> None:
    recorder = RequestRecorder()
    recorder.watch(VM)
    recorder.record(seen(1, b"a"))
    recorder.record(seen(2, status=None))
    recorder.record(seen(2, b"a"))
    assert facts(recorder.watch(VM).exchanges) == [(1, 2, 2, 200, b"a")]


def test_number_and_size_of_exchanges_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXCHANGES", 3)
    recorder = RequestRecorder()
    recorder.watch(VM)
    for number in range(1, 6):
        recorder.record(seen(number, b"%d" % number))
    assert [each.number for each in recorder.watch(VM).exchanges] == [3, 4, 5]
    monkeypatch.setattr(module, "MAX_BYTES", 2 * len(EVENTS) + 2)
    recorder.record(seen(6, b"6"))
    assert [each.number for each in recorder.watch(VM).exchanges] == [5, 6]


def test_vm_that_was_not_looked_at_for_the_longest_time_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VMS", 2)
    recorder = RequestRecorder()
    for vm in ("a/a", "b/b", "a/a", "c/c"):
        recorder.watch(vm)
    assert [recorder.watches(vm) for vm in ("a/a", "b/b", "c/c")] == [True, False, True]


def test_recording_ends_when_nobody_looks_any_more() -> None:
    changes: list[bool] = []
    recorder = RequestRecorder()
    recorder.on_change = lambda: changes.append(recorder.is_active)
    recorder.watch(VM)
    for _ in range(WATCH_TICKS):
        recorder.tick()
    recorder.watch(VM)
    for _ in range(WATCH_TICKS):
        recorder.tick()
    assert changes == [True]
    recorder.tick()
    assert changes == [True, False]
    recorder.record(seen(1))
    assert recorder.watch(VM) == (0, ())
