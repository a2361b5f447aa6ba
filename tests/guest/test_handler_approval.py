"""Approvals (PROTOCOL §4): 200 only after the approval is saved."""

import asyncio
import json

import pytest

from forewarn.core.event import EventType, State
from forewarn.guest.connection_state import ConnectionState
from forewarn.store.port import RecordKey
from forewarn.wire.error_responses import ErrorReason
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import FailingStore, Save, UnsureStore, until
from tests.guest.running_endpoint import EVENTS, GET, approval, request, run_endpoint

UNKNOWN = "602D9444-D2CD-49C7-8624-8643E7171297"


async def test_approval_starts_the_event_before_the_response() -> None:
    """A poll after the 200 sees the event as Started."""
    async with run_endpoint() as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect("web/web-1")
        answer = await peer.post(approval(event.lower()))
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
        assert endpoint.fleet.replica.scope("web").event(event).state is State.STARTED
        assert (await peer.request()).document["Events"][0]["EventStatus"] == "Started"
        assert (await peer.post(approval(event))).status == 200


class SlowStore(FailingStore):
    """A store that saves when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save = asyncio.Event()
        self.may_save.set()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        await self.may_save.wait()
        return await super().intercept(key, save)


async def test_approval_is_answered_after_the_save_and_pipelined_requests_wait() -> None:
    """Pipelined requests are answered afterwards, in order."""
    store = SlowStore()
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)) + GET + request("GET", "/nowhere"))
        other = await endpoint.connect("web/web-1")
        assert (await other.request()).document["Events"][0]["EventStatus"] == "Scheduled"
        assert endpoint.counters.responses[200] == 2
        store.may_save.set()
        answers = [await peer.read_response() for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 404]
        assert answers[1].document["Events"][0]["EventStatus"] == "Started"


async def test_approval_that_cannot_be_saved_is_503_and_has_no_effect() -> None:
    """It can be repeated when the store works again."""
    store = FailingStore()
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        store.full = True
        answer = await peer.post(approval(event))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "could not be saved" in answer.document["error"]
        assert (await peer.request()).document["Events"][0]["EventStatus"] == "Scheduled"
        store.full = False
        assert (await peer.post(approval(event))).status == 200
        assert (await peer.request()).document["Events"][0]["EventStatus"] == "Started"


@pytest.mark.parametrize("is_saved", [False, True])
async def test_approval_with_an_unknown_outcome_is_503_and_can_be_repeated(*, is_saved: bool) -> None:
    """The response neither confirms the approval nor says that it had no effect."""
    store = UnsureStore()
    store.saves = is_saved
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        store.is_unsure = True
        answer = await peer.post(approval(event))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "it is not known whether the request was saved" in answer.document["error"]
        store.is_unsure = False
        assert (await peer.post(approval(event))).status == 200
        assert (await peer.request()).document["Events"][0]["EventStatus"] == "Started"


async def test_unknown_event_is_400_and_none_is_approved() -> None:
    """An approval of several events is all or nothing."""
    async with run_endpoint() as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        answer = await peer.post(approval(event, UNKNOWN))
        assert answer.status == 400
        assert UNKNOWN in answer.document["error"]
        assert (await peer.request()).document["Events"][0]["EventStatus"] == "Scheduled"
        assert endpoint.counters.refusals[ErrorReason.UNKNOWN_EVENT] == 1


async def test_event_of_another_scope_is_unknown() -> None:
    """PROTOCOL §7: it is neither visible nor can it be approved."""
    async with run_endpoint(scope("a", vm("a0")), scope("b", vm("b0"))) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "a/a0"))
        peer = await endpoint.connect("b/b0")
        assert (await peer.post(approval(event))).status == 400
        assert endpoint.fleet.replica.scope("a").event(event).state is State.SCHEDULED


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b"{}", b'{"StartRequests":{}}', b'{"StartRequests":[{}]}', b'{"StartRequests":[{"EventId":1}]}'],
)
async def test_malformed_body_is_400_with_a_reason(body: bytes) -> None:
    """PROTOCOL §4. The connection stays open."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        answer = await peer.post(body)
        assert answer.status == 400
        assert answer.document["error"].startswith("Bad request: ")
        assert (await peer.request()).status == 200


async def test_same_approval_may_be_repeated_on_one_connection() -> None:
    """A repeated request without a body is served from the cache; an approval must not be."""
    async with run_endpoint() as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        assert [(await peer.post(approval(event))).status for _ in range(3)] == [200, 200, 200]
        assert (await peer.post(approval(event.replace("-", "")))).status == 400


async def test_old_client_posts_its_incarnation_and_no_metadata_header() -> None:
    """PROTOCOL §1, §2: only at 2017-03-01."""
    async with run_endpoint() as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        body = json.dumps({"DocumentIncarnation": "2", "StartRequests": [{"EventId": event}]}).encode()
        old = EVENTS.replace("2020-07-01", "2017-03-01")
        peer = await endpoint.connect()
        assert (await peer.request(request("POST", body=body, metadata=False))).status == 400
        assert (await peer.request(request("POST", old, body=body, metadata=False))).status == 200
        assert endpoint.fleet.replica.scope("web").event(event).state is State.STARTED


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_approval_of_a_disconnected_peer_takes_effect(how: str) -> None:
    """The service has received it."""
    store = SlowStore()
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        if how == "resets":
            peer.reset()
            await until(lambda: endpoint.counters.connections == 0)
        else:
            await peer.close()
        store.may_save.set()
        await until(lambda: endpoint.fleet.replica.scope("web").event(event).state is State.STARTED)
        await until(lambda: endpoint.counters.connections == 0)


async def test_two_hundred_approvals_at_once_are_all_answered() -> None:
    """Each on its own connection."""
    names = [f"v{n}" for n in range(200)]
    async with run_endpoint(scope("web", *(vm(name) for name in names))) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(
            schedule_request(EventType.REBOOT, *(f"web/{name}" for name in names))
        )
        peers = [await endpoint.connect(f"web/{name}") for name in names]
        answers = await asyncio.gather(*(peer.post(approval(event)) for peer in peers))
        assert {answer.status for answer in answers} == {200}
