"""ETag and If-None-Match: 304 for a caller that has the current document."""

import pytest

from forewarn.core.event import EventType
from tests.core.sample_scopes import schedule_request
from tests.guest.running_endpoint import EVENTS, GET, request, run_endpoint

OLD = "/metadata/scheduledevents?api-version=2017-08-01"
CURRENT = '"e1.1.2020-07-01"'


@pytest.mark.parametrize(
    "matching",
    [CURRENT, f"W/{CURRENT}", f'"other", {CURRENT}', f'W/"other",W/{CURRENT} , "third"', "*"],
)
async def test_same_document_is_304_without_a_body(matching: str) -> None:
    """With the ETag and the longest wait, without a Content-Length."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        for _ in range(3):
            answer = await peer.get(("If-None-Match", matching))
            assert (answer.status, answer.body) == (304, b"")
            assert answer.headers["etag"] == CURRENT
            assert answer.headers["forewarn-wait"] == "60"
            assert "content-length" not in answer.headers
        assert (await peer.request()).status == 200


@pytest.mark.parametrize("other", ['"e1.2.2020-07-01"', '"e1.1.2017-08-01"', "e1.1.2020-07-01", "nonsense"])
async def test_other_etag_gets_the_document(other: str) -> None:
    """Each api-version of the document has its own ETag."""
    async with run_endpoint() as endpoint:
        answer = await (await endpoint.connect()).get(("If-None-Match", other))
        assert (answer.status, answer.headers["etag"]) == (200, CURRENT)


async def test_cached_request_gets_the_changed_document() -> None:
    """The cache gives the same responses as the handler, for all api-versions on one connection."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        conditional = request("GET", EVENTS, ("If-None-Match", CURRENT))
        assert [(await peer.request(conditional)).status for _ in range(3)] == [304] * 3
        assert [(await peer.request()).document["DocumentIncarnation"] for _ in range(3)] == [1] * 3
        (pair,) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert [(await peer.request()).document["DocumentIncarnation"] for _ in range(2)] == [2] * 2
        changed = await peer.request(conditional)
        assert (changed.status, changed.headers["etag"]) == (200, '"e1.2.2020-07-01"')
        assert "EventSource" in (await peer.request()).document["Events"][0]
        assert "EventSource" not in (await peer.get(target=OLD)).document["Events"][0]
        await endpoint.fleet.events.cancel(pair[1], by="test")
        assert (await peer.request()).document == {"DocumentIncarnation": 3, "Events": []}


async def test_post_ignores_if_none_match() -> None:
    """PROTOCOL §1."""
    async with run_endpoint() as endpoint:
        answer = await (await endpoint.connect()).post(b'{"StartRequests":[]}', ("If-None-Match", CURRENT))
        assert answer.status == 200


async def test_all_connections_share_the_prepared_response() -> None:
    """It is rendered once per document and api-version."""
    async with run_endpoint() as endpoint:
        for name in ("web/web-0", "web/web-1"):
            peer = await endpoint.connect(name)
            await peer.request(GET)
            await peer.get(target=OLD)
        assert len(endpoint.fleet.replica.view("web").prepared) == 2
