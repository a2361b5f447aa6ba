"""HTTP as real clients use it, over real sockets."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR
from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.limits import Limits
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, approval, request, run_endpoint

EMPTY = {"DocumentIncarnation": 1, "Events": []}


async def test_headers_of_a_200_follow_the_protocol() -> None:
    """PROTOCOL §3 and §9, each header once."""
    async with run_endpoint() as endpoint:
        answer = await (await endpoint.connect()).request()
    assert answer.status == 200
    assert answer.document == EMPTY
    assert sorted(answer.headers) == [
        "content-length",
        "content-type",
        "date",
        "etag",
        "forewarn-wait",
        "server",
        "x-ms-request-id",
    ]
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["date"] == "Mon, 02 Mar 2026 10:00:00 GMT"
    assert re.fullmatch(r"IMDS/\d+\.\d+\.\d+\.\d+", answer.headers["server"])
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", answer.headers["x-ms-request-id"])
    assert answer.headers["etag"] == '"e1.1.2020-07-01"'
    assert answer.headers["forewarn-wait"] == "60"


async def test_connection_stays_open_and_no_request_id_repeats() -> None:
    """HTTP/1.1 without a Connection header."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        ids = {(await peer.request()).headers["x-ms-request-id"] for _ in range(100)}
    assert len(ids) == 100
    assert endpoint.counters.responses[200] == 100
    assert endpoint.counters.accepted == 1


OLDER = request("GET", EVENTS.replace("2020-07-01", "2019-08-01"))


@pytest.mark.parametrize("again", [pytest.param(GET, id="repeated"), pytest.param(OLDER, id="another")])
async def test_date_follows_the_fleet_clock(again: bytes) -> None:
    """A manual clock moves immediately; the next response has the new date."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        first = await peer.request(GET)
        endpoint.fleet.clock.set(endpoint.fleet.clock.now().replace(minute=7))  # type: ignore[attr-defined] # a manual clock
        second = await peer.request(again)
    dates = [answer.headers["date"] for answer in (first, second)]
    assert dates == ["Mon, 02 Mar 2026 10:00:00 GMT", "Mon, 02 Mar 2026 10:07:00 GMT"]


async def test_date_is_updated_once_per_second_in_real_time() -> None:
    """By the tick of the server, not by every request."""
    async with run_endpoint(clock=SystemClock()) as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        endpoint.server._state.common_headers.refresh(datetime(2020, 1, 1, tzinfo=UTC))
        stale = await peer.request()
        endpoint.tick_seconds(1)
        renewed = await peer.request()
    assert stale.headers["date"] == "Wed, 01 Jan 2020 00:00:00 GMT"
    assert renewed.headers["date"] != stale.headers["date"]


async def test_connection_close_is_echoed() -> None:
    """Node's client fails otherwise (PROTOCOL §1)."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        answer = await peer.get(("Connection", "close"))
        assert answer.headers["connection"] == "close"
        assert answer.document == EMPTY
        assert await peer.is_closed()


async def test_http_1_0_is_closed_without_keep_alive() -> None:
    """With keep-alive, the response says so, because HTTP/1.0 clients need that."""
    async with run_endpoint() as endpoint:
        plain = await endpoint.connect()
        answer = await plain.request(request(version="1.0"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await plain.is_closed()
        kept = await endpoint.connect()
        for _ in range(3):
            answer = await kept.request(request("GET", EVENTS, ("Connection", "keep-alive"), version="1.0"))
            assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")
            assert answer.document == EMPTY


@pytest.mark.parametrize("count", [2, 7, 500])
async def test_pipelined_requests_are_answered_in_order(count: int) -> None:
    """Identical or different requests, all in one packet."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        targets = [EVENTS if n % 3 else f"/nowhere/{n}" for n in range(count)]
        peer.send(b"".join(request("GET", target) for target in targets))
        answers = [await peer.read_response() for _ in targets]
        assert [answer.status for answer in answers] == [200 if target == EVENTS else 404 for target in targets]
        ids = [answer.headers["x-ms-request-id"] for answer in answers]
        assert ids == sorted(ids)


async def test_identical_pipelined_requests_are_all_answered() -> None:
    """More than fit into one read and one write, after the request is cached."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        count = 5000
        peer.send(GET * count)
        for _ in range(count):
            assert (await peer.read_response()).document == EMPTY
        assert endpoint.counters.responses[200] == count + 1


async def test_cached_request_does_not_get_the_response_of_an_uncached_one() -> None:
    """Some requests are not cached, here a large one: their response must not be used for another request."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        first = await peer.request()
        large = await peer.request(OLDER.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 4096 + b"\r\n\r\n"))
        again = await peer.request()
        assert large.headers["etag"] != first.headers["etag"] == again.headers["etag"]


async def test_cached_bytes_in_a_body_are_not_a_request() -> None:
    """A packet equal to a cached request may also be the body of another request."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        peer.send(request("POST", EVENTS, ("Content-Length", str(len(GET)))))
        await until(lambda: endpoint.connection_states() == [ConnectionState.BODY])
        peer.send(GET)
        assert (await peer.read_response()).status == 400
        assert (await peer.request()).status == 200
        assert endpoint.counters.responses[200] == 2


async def test_cached_bytes_in_headers_are_not_a_request() -> None:
    """They belong to the incomplete headers: here as the value of a header."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        peer.send(b"GET /nowhere HTTP/1.1\r\nX: ")
        await until(lambda: endpoint.connection_states() == [ConnectionState.HEAD])
        peer.send(GET)
        assert (await peer.read_response()).status == 404
        assert endpoint.counters.responses[200] == 1


CLOSING_GET = request("GET", EVENTS, ("Connection", "close"))


async def test_request_cached_by_another_connection_gets_its_own_response() -> None:
    """All connections share the parsed request; response and rate limit are the caller's."""
    scopes = (scope("web", vm("web-0")), scope("db", vm("db-0")))
    async with run_endpoint(*scopes, limits=Limits(requests_per_second=2)) as endpoint:
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "db/db-0"))
        web = [await (await endpoint.connect("web/web-0")).request(CLOSING_GET) for _ in range(3)]
        db = [await (await endpoint.connect("db/db-0")).request(CLOSING_GET) for _ in range(3)]
    assert [answer.status for answer in (*web, *db)] == [200, 200, 429, 200, 200, 429]
    assert [answer.document["Events"] for answer in web[:2]] == [[], []]
    assert [answer.document["Events"][0]["Resources"] for answer in db[:2]] == [["db-0"], ["db-0"]]


async def test_request_cached_by_another_connection_sees_changes() -> None:
    """A cached response is used only while the document is unchanged."""
    async with run_endpoint() as endpoint:
        before = await (await endpoint.connect()).request(CLOSING_GET)
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        after = await (await endpoint.connect()).request(CLOSING_GET)
    assert before.document == EMPTY
    assert [event["EventType"] for event in after.document["Events"]] == ["Reboot"]


@pytest.mark.parametrize(
    ("raw", "connection"),
    [
        (CLOSING_GET, "close"),
        (GET, None),
        (request(version="1.0"), "close"),
        (request("GET", EVENTS, ("Connection", "keep-alive"), version="1.0"), "keep-alive"),
    ],
)
async def test_request_cached_by_another_connection_keeps_its_connection_header(
    raw: bytes, connection: str | None
) -> None:
    """The second connection closes or stays open like the first, with the same header."""
    async with run_endpoint() as endpoint:
        for _ in range(2):
            peer = await endpoint.connect()
            answer = await peer.request(raw)
            assert (answer.status, answer.headers.get("connection")) == (200, connection)
            if connection == "close":
                assert await peer.is_closed()
            else:
                assert (await peer.request()).status == 200


async def test_body_after_cached_bytes_is_not_lost() -> None:
    """Cached headers without a body are another request if a body follows."""
    async with run_endpoint() as endpoint:
        await (await endpoint.connect()).request(GET)
        peer = await endpoint.connect()
        peer.send(GET + request("POST", body=approval()))
        assert [(await peer.read_response()).status for _ in range(2)] == [200, 200]


async def test_absolute_form_is_served() -> None:
    """Clients with http_proxy set send it (PROTOCOL §1)."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.get(target=f"http://169.254.169.254{EVENTS}")).document == EMPTY


@pytest.mark.parametrize(
    "raw",
    [
        request(),
        request("POST", body=approval()),
        request("POST", EVENTS, ("Transfer-Encoding", "chunked"))
        + b'5\r\n{"Sta\r\nD;a=b\r\nrtRequests":[\r\n2\r\n]}\r\n0\r\n\r\n',
        b"\r\n\r\n" + request(),
        request("GET", EVENTS, ("Connection", "Upgrade"), ("Upgrade", "h2c")),
        request("POST", EVENTS, ("Connection", "Upgrade"), ("Upgrade", "h2c"), body=approval()),
    ],
    ids=["GET", "POST", "chunked POST", "empty lines before", "upgrade GET", "upgrade POST"],
)
async def test_requests_may_arrive_byte_by_byte(raw: bytes) -> None:
    """The next request is read from its start."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        for byte in raw:
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await peer.read_response()).status == 200
        assert (await peer.request()).document == EMPTY


async def test_chunked_body_with_trailers_and_a_pipelined_request() -> None:
    """The bytes after a chunked body are the next request; trailers are not headers of either request."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        chunked = request("POST", EVENTS, ("Transfer-Encoding", "Chunked"))
        whole = approval()
        peer.send(chunked + b"%x\r\n%b\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n" % (len(whole), whole) + GET)
        assert (await peer.read_response()).status == 200
        assert (await peer.read_response()).document == EMPTY


async def test_expect_100_continue_is_answered_before_the_body() -> None:
    """.NET clients wait for it (PROTOCOL §1)."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        body = approval()
        peer.send(request("POST", EVENTS, ("Expect", "100-continue"), ("Content-Length", str(len(body)))))
        assert (await peer.read_response()).status == 100
        peer.send(body)
        assert (await peer.read_response()).status == 200
        assert (await peer.request()).status == 200


async def test_refusal_replaces_100_continue() -> None:
    """The body may follow or not, so the connection is closed."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        head = request("POST", EVENTS, ("Expect", "100-continue"), ("Content-Length", "10"), metadata=False)
        answer = await peer.request(head)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.body == b'{ "error": "Bad request: . Required metadata header not specified" }'
        assert await peer.is_closed()


async def test_other_expectations_are_417() -> None:
    """RFC 9110: 417."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.get(("Expect", "wonders"))).status == 417
        assert await peer.is_closed()


async def test_head_is_405_without_a_body() -> None:
    """The connection stays open (PROTOCOL §5)."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(request("HEAD") + GET)
        answer = await peer.read_response(to_head=True)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
        assert (await peer.read_response()).document == EMPTY


MALFORMED = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00",
    "bare line feeds": b"GET / HTTP/1.1\n\n",
    "HTTP/0.9": b"GET /metadata/versions\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown version": b"GET / HTTP/1.7\r\n\r\n",
    "HTTP/2 in the form of HTTP/1": b"GET /metadata/versions HTTP/2.0\r\nMetadata: true\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nMetadata : true\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "zero byte in a header": b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "negative length": b"POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n",
    "length too large for an integer": b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    "other encoding": b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "upgrade with two framings": b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_http_is_400_then_closed(raw: bytes) -> None:
    """Earlier requests on the connection are answered, later bytes are not read."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(GET + raw + GET)
        assert (await peer.read_response()).status == 200
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.document["error"].startswith("Bad request: ")
        assert await peer.is_closed()
        assert endpoint.counters.responses[200] == 1
        assert (await (await endpoint.connect()).request()).status == 200


async def test_upgrade_is_ignored() -> None:
    """Java's client offers h2c with every first request, also with a body; the response is HTTP/1.1."""
    offer = (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAEAAEAAAAIAAAAB"))
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.get(*offer)).document == EMPTY
        assert (await peer.post(b"[]", *offer)).status == 400
        assert (await peer.post(approval(), *offer)).status == 200
        peer.send(request("POST", EVENTS, *offer, ("Transfer-Encoding", "chunked")) + b"2\r\n{}\r\n0\r\n\r\n" + GET)
        assert (await peer.read_response()).status == 400
        assert (await peer.read_response()).document == EMPTY


async def test_connect_is_refused_and_closed() -> None:
    """A client that takes us for a proxy would send another protocol next."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n" + GET)
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        assert await peer.is_closed()


async def test_body_of_a_get_is_read_and_ignored() -> None:
    """It must not be parsed as the next request."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        for _ in range(3):
            peer.send(request("GET", EVENTS, body=b"GET / HTTP/1.1\r\n\r\n") + GET)
            assert [(await peer.read_response()).document for _ in range(2)] == [EMPTY, EMPTY]


async def test_refused_request_with_a_body_leaves_the_connection_usable() -> None:
    """The body is read to its end before the response."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.post(b"x" * 5000, target="/nowhere")).status == 404
        assert (await peer.request()).status == 200


async def test_half_closed_peer_gets_its_responses() -> None:
    """A client may send all its requests and then half-close the connection."""
    async with run_endpoint() as endpoint:
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        (event,) = (await peer.request()).document["Events"]
        peer.send(request("POST", body=approval(event["EventId"])) + GET)
        peer.writer.write_eof()
        assert (await peer.read_response()).status == 200
        assert (await peer.read_response()).document["Events"][0]["EventStatus"] == "Started"
        assert await peer.is_closed()


async def test_unix_socket_serves_its_vm(tmp_path: Path) -> None:
    """Every process that can open it counts as that VM; after the shutdown, connecting fails."""
    path = tmp_path / "guest.sock"
    async with run_endpoint() as endpoint:
        await endpoint.server.listen_on_unix_socket("web/web-1", path)
        peer = await endpoint.connect_unix(str(path))
        assert (await peer.request()).document == EMPTY
        name = await peer.get(target="/metadata/instance/compute/name?api-version=2020-09-01&format=text")
        assert name.body == b"web-1"
        peer.send(GET * 3)
        assert [(await peer.read_response()).status for _ in range(3)] == [200] * 3
        peer.send(b"nonsense\r\n\r\n")
        assert (await peer.read_response()).status == 400
        assert await peer.is_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(str(path))


async def test_all_four_kinds_of_requests_are_answered() -> None:
    """Events, approval, instance, versions."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.get()).document == EMPTY
        approved = await peer.post(approval())
        assert (approved.status, approved.headers["content-length"], approved.body) == (200, "0", b"")
        assert (await peer.get(target="/metadata/instance?api-version=2021-01-01")).document["compute"][
            "name"
        ] == "web-0"
        assert (await peer.get(target="/metadata/versions")).document["apiVersions"][-1] == "2020-07-01"


async def test_unsupported_version_has_the_configured_status() -> None:
    """PROTOCOL §5."""
    target = "/metadata/scheduledevents?api-version=latest"
    async with run_endpoint() as endpoint:
        assert (await (await endpoint.connect()).get(target=target)).status == 404
    async with run_endpoint(unsupported_version_status=400) as endpoint:
        assert (await (await endpoint.connect()).get(target=target)).status == 400


UNRELEASED = "/metadata/scheduledevents?api-version=2024-07-09"


async def test_unreleased_version_is_404_and_not_listed_by_default() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.get(target=UNRELEASED)).status == 404
        assert "2024-07-09" not in (await peer.get(target="/metadata/versions")).document["apiVersions"]


async def test_unreleased_version_shows_its_event_type_and_older_versions_hide_it() -> None:
    policy = msgspec.structs.replace(EMULATOR, allows_unreleased=True)
    spot = scope("web", vm("web-0", domain=0, ip="127.0.0.1"), low_priority=True)
    async with run_endpoint(spot, policy=policy) as endpoint:
        await endpoint.fleet.events.schedule(
            schedule_request(EventType.SPOT_REBALANCE_RECOMMENDATION, "web/web-0"),
        )
        peer = await endpoint.connect("web/web-0")
        versions = (await peer.get(target="/metadata/versions")).document["apiVersions"]
        (event,) = (await peer.get(target=UNRELEASED)).document["Events"]
        older = await peer.get(target="/metadata/scheduledevents?api-version=2020-07-01")
    assert versions[-2:] == ["2020-07-01", "2024-07-09"]
    assert (event["EventType"], event["DurationInSeconds"]) == ("SpotRebalanceRecommendation", 0)
    assert older.document["Events"] == []
