"""Fault injection on real sockets: the response of each kind of fault."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from forewarn.clock import ManualClock
from forewarn.core.fault import FaultKind
from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.limits import Limits
from forewarn.wire.error_responses import JSON, ErrorReason
from forewarn.wire.fault_responses import EXTRA_FIELD, UNKNOWN_EVENT_TYPE
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import until
from tests.guest.running_endpoint import (
    EMPTY,
    EVENTS,
    GET,
    approval,
    reboot,
    request,
    run_endpoint,
)

LONG = timedelta(minutes=2)


@pytest.mark.parametrize(
    ("kind", "content_type", "body", "retry_after"),
    [
        (
            FaultKind.STATUS_410,
            JSON,
            b'{"error":"Gone: the service is being updated, try again within 70 seconds"}',
            None,
        ),
        (FaultKind.STATUS_429, "text/plain; charset=utf-8", b"Too Many Requests", "1"),
        (FaultKind.STATUS_500, JSON, b'{"error":"Internal server error: try again"}', None),
    ],
)
async def test_status_fault_replaces_the_response(
    kind: FaultKind, content_type: str, body: bytes, retry_after: str | None
) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(kind, vm="web-0", times=1, by="test")
        wrong = await peer.request()
        assert (f"status-{wrong.status}", wrong.body) == (kind.value, body)
        assert (wrong.headers["content-type"], wrong.headers.get("retry-after")) == (content_type, retry_after)
        assert "connection" not in wrong.headers
        right = await peer.request()
        assert (right.status, right.body) == (200, EMPTY)
        assert (endpoint.counters.refusals[ErrorReason.FAULT], endpoint.counters.failures) == (1, 0)


async def test_refused_approval_approves_nothing() -> None:
    async with run_endpoint() as endpoint:
        event = await reboot(endpoint)
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.STATUS_500, times=1, by="test")
        assert (await peer.post(approval(event))).status == 500
        assert endpoint.fleet.events.find(event)[1].approvals == ()
        assert (await peer.post(approval(event))).status == 200
        assert endpoint.fleet.events.find(event)[1].state.value == "Started"


async def test_empty_body() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.EMPTY_BODY, times=1, by="test")
        answer = await peer.request()
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
        assert (answer.headers["content-type"], "etag" in answer.headers) == (JSON, False)
        assert (await peer.request()).body == EMPTY


async def test_truncated_json_has_a_correct_content_length() -> None:
    """The HTTP framing is correct, so that the connection stays usable; only the JSON is wrong."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        whole = await peer.request()
        await endpoint.faults.set(FaultKind.TRUNCATED, times=1, by="test")
        answer = await peer.request()
        assert answer.body == whole.body[: len(whole.body) // 2]
        assert int(answer.headers["content-length"]) == len(answer.body) < len(whole.body)
        with pytest.raises(ValueError, match=r"Unterminated|delimiter|Expecting"):
            _ = answer.document
        assert (await peer.request()).body == whole.body


async def test_wrong_content_type_with_the_right_document() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.WRONG_CONTENT_TYPE, times=1, by="test")
        answer = await peer.request()
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, EMPTY, "text/html; charset=utf-8")


async def test_unknown_event_type_affects_only_documents_with_events() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        fault = await endpoint.faults.set(FaultKind.UNKNOWN_EVENT_TYPE, times=1, by="test")
        assert (await peer.request()).body == EMPTY
        event = await reboot(endpoint)
        (shown,) = (await peer.request()).document["Events"]
        assert (shown["EventId"], shown["EventType"]) == (event, UNKNOWN_EVENT_TYPE)
        assert fault.id not in {each.id for each in endpoint.faults.list()}
        (right,) = (await peer.request()).document["Events"]
        assert right == shown | {"EventType": "Reboot"}


async def test_extra_field_in_the_document_and_each_event() -> None:
    async with run_endpoint() as endpoint:
        await reboot(endpoint)
        peer = await endpoint.connect()
        right = (await peer.request()).document
        await endpoint.faults.set(FaultKind.EXTRA_FIELD, times=1, by="test")
        wrong = (await peer.request()).document
        extra = dict([EXTRA_FIELD])
        assert wrong == {**right, "Events": [{**event, **extra} for event in right["Events"]], **extra}
        assert list(wrong["Events"][0])[:-1] == list(right["Events"][0])


async def test_wrong_date_changes_only_the_date() -> None:
    async with run_endpoint(clock=ManualClock(TEN)) as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.WRONG_DATE, amount=-timedelta(days=1, hours=2), times=2, by="test")
        for asked in (GET, request("POST", body=approval())):
            answer = await peer.request(asked)
            assert answer.status == 200
            assert parsedate_to_datetime(answer.headers["date"]) == TEN - timedelta(days=1, hours=2)
        assert parsedate_to_datetime((await peer.request()).headers["date"]) == TEN


async def test_faulty_documents_have_no_etag_and_ignore_if_none_match() -> None:
    """A later request must not get 304 for a faulty document."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        etag = (await peer.request()).headers["etag"]
        await endpoint.faults.set(FaultKind.EXTRA_FIELD, times=1, by="test")
        wrong = await peer.get(("If-None-Match", etag), target=f"{EVENTS}&wait=60")
        assert (wrong.status, "etag" in wrong.headers, "forewarn-wait" in wrong.headers) == (200, False, False)
        assert (await peer.get(("If-None-Match", etag))).status == 304


@pytest.mark.parametrize("kind", [FaultKind.SLOW, FaultKind.LATE_FIRST_ANSWER])
async def test_response_is_delayed(kind: FaultKind) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(kind, amount=timedelta(milliseconds=30), times=1, by="test")
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await peer.request()).body == EMPTY
        assert loop.time() - began >= 0.029
        await until(lambda: not endpoint.faults.list())


async def test_slow_approval_takes_effect_with_its_response() -> None:
    async with run_endpoint() as endpoint:
        event = await reboot(endpoint)
        peer = await endpoint.connect()
        fault = await endpoint.faults.set(FaultKind.SLOW, amount=LONG, by="test")
        peer.send(request("POST", body=approval(event)))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        assert endpoint.fleet.events.find(event)[1].approvals == ()
        await endpoint.faults.clear(fault.id, by="test")
        assert (await peer.read_response()).status == 200
        assert endpoint.fleet.events.find(event)[1].state.value == "Started"


async def test_reset_closes_the_connection_with_a_tcp_reset() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.RESET, times=1, by="test")
        peer.send(GET)
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(60):
                await peer.reader.read()
        assert (await (await endpoint.connect()).request()).status == 200


async def test_reset_over_a_unix_socket_closes_without_a_response(tmp_path: Path) -> None:
    """Unix sockets have no TCP reset."""
    async with run_endpoint() as endpoint:
        await endpoint.server.listen_on_unix_socket("web/web-0", tmp_path / "s")
        peer = await endpoint.connect_unix(str(tmp_path / "s"))
        await endpoint.faults.set(FaultKind.RESET, times=1, by="test")
        peer.send(GET)
        assert await peer.read_until_close() == b""


async def test_reset_approval_approves_nothing() -> None:
    async with run_endpoint() as endpoint:
        event = await reboot(endpoint)
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.RESET, times=1, by="test")
        peer.send(request("POST", body=approval(event)))
        with suppress(ConnectionResetError):
            await peer.reader.read()
        assert endpoint.fleet.events.find(event)[1].approvals == ()


@pytest.mark.parametrize(
    "wrong",
    [
        request(metadata=False),
        request(target="/metadata/scheduledevents?api-version=1999-01-01"),
        request(target="/metadata/versions"),
        request(target="/metadata/instance?api-version=2021-02-01"),
        request("PUT"),
    ],
)
async def test_invalid_and_other_requests_are_not_affected(wrong: bytes) -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        before = await peer.request(wrong)
        await endpoint.faults.set(FaultKind.STATUS_410, times=1, by="test")
        after = await peer.request(wrong)
        assert (after.status, after.body) == (before.status, before.body)
        assert [fault.hits for fault in endpoint.faults.list()] == [0]
        assert (await peer.request()).status == 410


async def test_rate_limit_comes_before_faults() -> None:
    limits = Limits(requests_per_second=1)
    async with run_endpoint(limits=limits) as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.STATUS_410, by="test")
        assert [(await peer.request()).status for _ in range(3)] == [410, 429, 429]
        assert [fault.hits for fault in endpoint.faults.list()] == [1]


async def test_cached_request_is_affected_while_the_fault_is_active() -> None:
    """The response to a repeated request is cached; the cache must not bypass faults."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert [(await peer.request()).status for _ in range(3)] == [200] * 3
        fault = await endpoint.faults.set(FaultKind.STATUS_500, by="test")
        assert [(await peer.request()).status for _ in range(3)] == [500] * 3
        await endpoint.faults.clear(fault.id, by="test")
        assert [(await peer.request()).status for _ in range(3)] == [200] * 3


async def test_pipelined_requests_are_affected_in_order() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await endpoint.faults.set(FaultKind.STATUS_410, times=2, by="test")
        peer.send(GET * 4)
        assert [(await peer.read_response()).status for _ in range(4)] == [410, 410, 200, 200]


async def test_faults_change_neither_document_nor_etag() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        before = await peer.request()
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", times=1, by="test")
        await peer.request()
        after = await peer.request()
        assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])


async def test_preview_shows_the_fault_and_uses_up_nothing() -> None:
    async with run_endpoint(enable_delay=LONG) as endpoint:
        await endpoint.faults.set(FaultKind.STATUS_410, vm="web-0", times=1, by="test")
        slow = await endpoint.faults.set(FaultKind.SLOW, amount=timedelta(seconds=5), by="test")
        found = [endpoint.server.preview("web/web-0") for _ in range(3)][-1]
        assert (found.status, found.delay) == (410, LONG + timedelta(seconds=5))
        assert [(fault.kind, fault.hits) for fault in found.faults] == [(FaultKind.SLOW, 0), (FaultKind.STATUS_410, 0)]
        assert endpoint.server.preview("web/web-1").faults == (slow,)
        assert [fault.hits for fault in endpoint.faults.list()] == [0, 0]
        assert endpoint.fleet.replica.scope("web").enabled is False
