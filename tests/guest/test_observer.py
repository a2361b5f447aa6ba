"""The observer gets every request of a VM and its response."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.guest.observer import BODY_BYTES, Observed
from tests.core.sample_scopes import TEN, schedule_request
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, approval, request, run_endpoint


class RecordingObserver:
    """Keeps the latest report of each request, in order of arrival."""

    def __init__(self) -> None:
        self.calls: list[Observed] = []

    def __call__(self, seen: Observed) -> None:
        self.calls.append(seen)

    @property
    def requests(self) -> list[Observed]:
        return list({seen.number: seen for seen in self.calls}.values())


async def test_every_request_is_reported_even_if_it_repeats() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes, clock=ManualClock(TEN)) as endpoint:
        peer = await endpoint.connect()
        for _ in range(3):
            await peer.request()
    assert [(seen.number, seen.vm, seen.wall, seen.method, seen.target, seen.status) for seen in notes.requests] == [
        (number, "web/web-0", TEN, "GET", EVENTS, 200) for number in (1, 2, 3)
    ]
    assert [seen.at for seen in notes.requests] == sorted(seen.at for seen in notes.requests)
    assert all(seen.answered_at is not None and seen.answered_at >= seen.at for seen in notes.requests)


async def test_approvals_are_reported_in_order_with_their_body() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.post(approval(event.lower()))
        await peer.post(approval("00000000-0000-0000-0000-000000000000"))
        await peer.post(b"no JSON")
    assert [(seen.approved, seen.status) for seen in notes.requests] == [
        ((event,), 200),
        (("00000000-0000-0000-0000-000000000000",), 400),
        ((), 400),
    ]
    assert notes.requests[0].body == approval(event.lower())


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (request(metadata=False), ("GET", EVENTS, 400)),
        (request("PUT"), ("PUT", EVENTS, 405)),
        (request(target="/nothing"), ("GET", "/nothing", 404)),
        (request("POST", EVENTS, ("Expect", "100-continue"), body=b"x" * 100_000), ("POST", EVENTS, 413)),
        (request("POST", "/nothing", ("Expect", "100-continue"), body=b"{}"), ("POST", "/nothing", 404)),
        (b"no HTTP at all\r\n\r\n", ("", "", 400)),
    ],
)
async def test_refused_requests_are_reported(sent: bytes, seen: tuple[str, str, int]) -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        peer = await endpoint.connect()
        assert (await peer.request(sent)).status == seen[2]
    assert [(each.method, each.target, each.status) for each in notes.requests] == [seen]


async def test_long_body_is_truncated() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        await (await endpoint.connect()).post(b"x" * 10_000)
    assert notes.requests[0].body == b"x" * BODY_BYTES


async def test_waiting_request_is_reported_at_arrival_and_response() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        peer = await endpoint.connect()
        etag = (await peer.request()).headers["etag"]
        peer.send(request("GET", f"{EVENTS}&wait=60", ("If-None-Match", etag)))
        await until(lambda: len(notes.requests) == 2)
        assert [seen.status for seen in notes.requests] == [200, None]
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        await peer.read_response()
        assert [(seen.number, seen.status) for seen in notes.requests] == [(1, 200), (2, 200)]


async def test_request_without_a_response_has_no_status() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        await endpoint.faults.set(FaultKind.RESET, times=1, by="test")
        peer = await endpoint.connect()
        peer.send(GET)
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(60):
                await peer.reader.read()
        await endpoint.faults.set(FaultKind.STATUS_410, times=1, by="test")
        await (await endpoint.connect()).request()
    assert [(seen.number, seen.status) for seen in notes.requests] == [(1, None), (2, 410)]


async def test_slow_response_is_reported_twice_with_the_time_of_arrival() -> None:
    notes = RecordingObserver()
    async with run_endpoint(observer=notes) as endpoint:
        await endpoint.faults.set(FaultKind.SLOW, amount=timedelta(milliseconds=30), times=1, by="test")
        await (await endpoint.connect()).request()
    first, last = notes.calls
    assert (first.status, last.status, first.at) == (None, 200, last.at)
    assert last.answered_at is not None
    assert last.answered_at - last.at >= 0.029


async def test_failing_observer_is_logged_and_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Observed) -> None:
        raise ValueError("no")

    async with run_endpoint(observer=fail) as endpoint:
        assert (await (await endpoint.connect()).request()).status == 200
        assert endpoint.counters.failures == 0
    assert {record.getMessage() for record in caplog.records} == {"internal error in the request observer"}
