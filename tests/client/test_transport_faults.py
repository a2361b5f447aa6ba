"""Both clients against a faulty server, byte by byte. Both must behave the same."""

import math
import socket

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn import __version__
from forewarn.client import (
    Appeared,
    ClientError,
    Document,
    Gone,
    NotUnderstood,
    Refused,
    ScheduledEvents,
    Started,
    TooSlow,
    Unavailable,
    Unreachable,
    transport,
)
from forewarn.client.document import read_document
from forewarn.client.effects import Response
from forewarn.client.transport import Exchange
from tests.client.faulty_server import (
    Behaviour,
    FakeTime,
    closes_at_once,
    dribbles,
    holds,
    holds_after,
    raw_response,
    resets_after,
    responds,
    run_faulty_server,
    sends,
    trickles,
)
from tests.client.scripted_flow import ID, document, event
from tests.client.users import AsyncUser, SyncUser, User
from tests.support.examples import examples

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
BODY = document(event())
FOUND = read_document(BODY) or Document()
GOOD = raw_response(200, BODY)
LONG = 60.0
"""More seconds than `timeout`, but fewer than `first_timeout`."""
TOO_LONG = 600.0

MISBEHAVIOUR: dict[str, tuple[Behaviour, type[ClientError]]] = {
    "closes without a response": (closes_at_once, Unreachable),
    "closes after the request": (sends(), Unreachable),
    "resets": (resets_after(), Unreachable),
    "resets within the headers": (resets_after(GOOD[:30]), Unreachable),
    "resets within the body": (resets_after(GOOD[:-30]), Unreachable),
    "never answers": (holds, TooSlow),
    "hangs after the headers": (holds_after(GOOD[: -len(BODY)]), TooSlow),
    "hangs within the body": (holds_after(GOOD[:-30]), TooSlow),
    "endless headers": (trickles(b"HTTP/1.1 200 OK\r\nA: ", b"b"), TooSlow),
    "endless body": (trickles(GOOD[: -len(BODY)], b" "), TooSlow),
    "ends within the status line": (sends(b"HTTP/1.1 20"), NotUnderstood),
    "ends within the headers": (sends(b"HTTP/1.1 200 OK\r\nDate: today\r\n"), NotUnderstood),
    "ends within the body": (sends(GOOD[:-30]), NotUnderstood),
    "truncates its JSON": (responds(200, BODY[:-30]), NotUnderstood),
    "has no Events": (responds(200, b'{"DocumentIncarnation":1}'), NotUnderstood),
    "Events is not a list": (responds(200, b'{"Events":7}'), NotUnderstood),
    "answers with HTML": (responds(200, b"<html>Sign in</html>", Content_Type="text/html"), NotUnderstood),
    "answers with noise": (responds(200, bytes(range(256))), NotUnderstood),
    "compresses": (responds(200, b"\x1f\x8b\x08\x00", Content_Encoding="gzip"), NotUnderstood),
    "JSON nested too deeply": (responds(200, b'{"Events":' + b"[" * 100_000), NotUnderstood),
    "does not speak HTTP": (sends(b"220 mail.example ESMTP\r\n\r\n"), NotUnderstood),
    "unknown HTTP version": (sends(b"HTTP/7 200 OK\r\n\r\n"), NotUnderstood),
    "has an endless header": (sends(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000), NotUnderstood),
    "has a thousand headers": (sends(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n"), NotUnderstood),
    "chunks badly": (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), NotUnderstood),
    "ends within a chunk": (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nabc"), NotUnderstood),
    "sends too much": (responds(200, b" " * (16 * 1024 * 1024 + 1)), NotUnderstood),
    "redirects": (responds(301, b"", Location="http://elsewhere/"), NotUnderstood),
    "answers 304 without an ETag": (responds(304, b""), NotUnderstood),
    "is being updated": (responds(410, b""), Unavailable),
    "has too many requests": (responds(429, b"Too Many Requests"), Unavailable),
    "has failed": (responds(500, b"{}"), Unavailable),
    "is overloaded": (responds(503, b""), Unavailable),
}

QUICK = {name: row for name, row in MISBEHAVIOUR.items() if row[1] is not TooSlow}
SLOW = {name: act for name, (act, error) in MISBEHAVIOUR.items() if error is TooSlow}

TOLERATED: dict[str, Behaviour] = {
    "byte by byte": dribbles(GOOD),
    "HTTP/1.0": sends(b"HTTP/1.0 200 OK\r\n\r\n" + BODY),
    "without a length": sends(b"HTTP/1.1 200 OK\r\n\r\n" + BODY),
    "with bare line feeds": sends(b"HTTP/1.1 200 OK\n\n" + BODY),
    "without a reason": sends(b"HTTP/1.1 200\r\n\r\n" + BODY),
    "in chunks": sends(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    ),
    "after 100 Continue": sends(b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD),
    "as plain text": responds(200, BODY, Content_Type="text/plain"),
    "without a content type": sends(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY),
    "with a byte order mark": responds(200, b"\xef\xbb\xbf" + BODY),
    "with bytes after the end": sends(GOOD + b"and so on"),
    "with a folded ETag": sends(b'HTTP/1.1 200 OK\r\nETag: "a\r\n b"\r\n\r\n' + BODY),
    "with unknown fields": responds(200, document(event(Colour="blue")).replace(b"{", b'{"Mood":[],', 1)),
}


@pytest.mark.parametrize(("act", "error"), QUICK.values(), ids=QUICK)
def test_get_raises_a_persistent_error(act: Behaviour, error: type[ClientError], user: User) -> None:
    with run_faulty_server(act) as running, pytest.raises(error) as caught:
        user.get(running.url, retry_for=0.0)
    assert (type(caught.value), user.pauses) == (error, [])


@pytest.mark.parametrize("act", SLOW.values(), ids=SLOW)
def test_get_times_out_on_an_endless_response(act: Behaviour, user: User, passing_time: FakeTime) -> None:
    with run_faulty_server(passing_time.within(act, TOO_LONG)) as running, pytest.raises(TooSlow) as caught:
        user.get(running.url, retry_for=0.0)
    assert (type(caught.value), user.pauses) == (TooSlow, [])


@pytest.mark.parametrize("act", SLOW.values(), ids=SLOW)
def test_watch_continues_after_an_endless_response(act: Behaviour, user: User, passing_time: FakeTime) -> None:
    with run_faulty_server(passing_time.within(act, TOO_LONG), responds(200, BODY)) as running:
        (change,) = user.changes(running.url, 1)
    assert ([type(trouble) for trouble in user.troubles], change) == ([TooSlow], Appeared(FOUND.events[0]))


@pytest.mark.parametrize(("act", "error"), QUICK.values(), ids=QUICK)
def test_get_survives_a_transient_error(act: Behaviour, error: type[ClientError], user: User) -> None:
    with run_faulty_server(act, responds(200, BODY)) as running:
        found = user.get(running.url)
    assert (found, user.pauses, [type(trouble) for trouble in user.troubles]) == (FOUND, [1.0], [error])
    assert running.targets[-1] == EVENTS


@pytest.mark.parametrize(("act", "error"), QUICK.values(), ids=QUICK)
def test_watch_continues_after_any_error(act: Behaviour, error: type[ClientError], user: User) -> None:
    acts = (responds(200, BODY), act, responds(200, document(event(status="Started"))), act, responds())
    with run_faulty_server(*acts) as running:
        changes = user.changes(running.url, 3)
    assert [type(change) for change in changes] == [Appeared, Started, Gone]
    assert [type(trouble) for trouble in user.troubles] == [error, error]


@pytest.mark.parametrize("act", TOLERATED.values(), ids=TOLERATED)
def test_document_is_read_from_any_valid_http_response(act: Behaviour, user: User) -> None:
    with run_faulty_server(act) as running:
        assert user.get(running.url, retry_for=0.0).events == FOUND.events


def test_truncated_response_is_never_a_document() -> None:
    with (
        run_faulty_server(*(sends(GOOD[:length]) for length in range(len(GOOD)))) as running,
        ScheduledEvents(running.url, retry_for=0.0) as se,
    ):
        for length in range(len(GOOD)):
            with pytest.raises((NotUnderstood, Unreachable)):
                se.get()
            assert len(running.received) == length + 1


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", GOOD[:60], GOOD[:-9]]))
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_raises_only_client_errors(garbage: bytes, beginning: bytes) -> None:
    with run_faulty_server(sends(beginning + garbage)) as running, ScheduledEvents(running.url, retry_for=0.0) as se:
        try:
            found = se.get()
        except ClientError:
            return
        assert isinstance(found, Document)


def test_empty_body_means_an_empty_document(user: User) -> None:
    with run_faulty_server(responds(200, b"")) as running:
        assert user.get(running.url, retry_for=0.0) == Document()


def test_empty_body_does_not_end_known_events(user: User) -> None:
    with run_faulty_server(responds(200, b""), responds(200, BODY), responds(200, b""), responds()) as running:
        changes = user.changes(running.url, 2)
    assert ([type(change) for change in changes], user.troubles) == ([Appeared, Gone], [])


def test_first_response_may_be_slow(user: User, passing_time: FakeTime) -> None:
    with run_faulty_server(passing_time.within(responds(200, BODY), 120.0)) as running:
        assert user.get(running.url, retry_for=0.0, timeout=10.0, first_timeout=130.0) == FOUND


def test_later_response_may_not_be_slow(user: User, passing_time: FakeTime) -> None:
    with run_faulty_server(responds(200, BODY), passing_time.within(holds, LONG), responds()) as running:
        user.changes(running.url, 2, timeout=10.0, first_timeout=130.0)
    assert [type(trouble) for trouble in user.troubles] == [TooSlow]


@pytest.mark.parametrize(
    "act",
    [sends(b"\x1b[2J\x07" + b"x" * 60_000 + b"\r\n"), responds(400, b"\x1b[2J\x07\n" + b"x" * 60_000)],
    ids=["no HTTP", "a refusal"],
)
def test_error_message_is_one_short_line(act: Behaviour, user: User) -> None:
    with run_faulty_server(act) as running, pytest.raises(ClientError) as caught:
        user.get(running.url, retry_for=0.0)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_missing_keep_alive_options_are_ignored(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEP_ALIVE", {"TCP_KEEPCNT": -1})
    with run_faulty_server(responds(200, BODY)) as running:
        assert user.get(running.url, retry_for=0.0) == FOUND


def test_timeouts_may_be_infinite(user: User) -> None:
    with run_faulty_server(responds(200, BODY), responds()) as running:
        changes = user.changes(running.url, 2, timeout=math.inf, first_timeout=math.inf, retry_for=math.inf)
    assert ([type(change) for change in changes], user.troubles) == ([Appeared, Gone], [])


def test_internal_error_is_raised(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Exchange) -> Response:
        raise LookupError("a mistake")

    monkeypatch.setattr(Exchange, "run", fail)
    with pytest.raises(LookupError, match="a mistake"):
        user.get("127.0.0.1:9")


def test_newest_version_of_the_service_is_used(user: User) -> None:
    refusal = msgspec.json.encode({"error": "no", "newest-versions": ["2019-01-01", "2017-11-01"]})
    with run_faulty_server(responds(404, refusal), responds(200, BODY), responds()) as running:
        user.changes(running.url, 2)
    assert [target[-10:] for target in running.targets] == ["2020-07-01", "2019-01-01", "2019-01-01"]


def test_versions_are_tried_if_the_service_lists_none(user: User) -> None:
    with run_faulty_server(*[responds(404, b"")] * 6, responds(200, BODY)) as running:
        assert user.get(running.url) == FOUND
    assert running.targets[-1][-10:] == "2017-03-01"


def test_retry_after_is_respected(user: User) -> None:
    with run_faulty_server(responds(429, b"Too Many Requests", Retry_After="1"), responds(200, BODY)) as running:
        assert user.get(running.url) == FOUND
    assert user.pauses == [1.5]


def test_status_410_is_retried_for_seventy_seconds(user: User) -> None:
    with run_faulty_server(*[responds(410, b"")] * 100) as running, pytest.raises(Unavailable):
        user.get(running.url)
    assert 65.0 <= sum(user.pauses) <= 70.0


def test_304_and_a_restarted_service_report_no_changes(user: User) -> None:
    acts = (
        responds(200, document(event(), incarnation=7), ETag='"a.7"'),
        responds(304, b"", ETag='"a.7"'),
        closes_at_once,
        responds(200, document(event(), incarnation=1), ETag='"b.1"'),
        responds(200, document(incarnation=2), ETag='"b.2"'),
    )
    with run_faulty_server(*acts) as running:
        changes = user.changes(running.url, 2)
    assert [type(change) for change in changes] == [Appeared, Gone]
    tags = [seen.headers.get("if-none-match") for seen in running.received]
    assert tags == [None, '"a.7"', None, '"b.1"']


def test_long_polls_are_used_while_they_are_offered(user: User) -> None:
    acts = (
        responds(200, BODY, ETag='"1"', Forewarn_Wait="60"),
        responds(304, b"", ETag='"1"', Forewarn_Wait="30"),
        responds(304, b"", ETag='"1"'),
        responds(200, document(), ETag='"2"'),
    )
    with run_faulty_server(*acts) as running:
        user.changes(running.url, 2)
    assert running.targets == [EVENTS, f"{EVENTS}&wait=60", f"{EVENTS}&wait=30", EVENTS]
    assert user.pauses == [0.25, 1.0, 1.0]


def test_approval_is_retried_until_it_succeeds(user: User, passing_time: FakeTime) -> None:
    no_end = passing_time.within(holds_after(b"HTTP/1.1 200"), TOO_LONG)
    with run_faulty_server(no_end, resets_after(), responds(503, b""), responds(200, b"")) as running:
        user.approve(running.url, ID)
    body = b'{"StartRequests":[{"EventId":"%b"}]}' % ID.encode()
    assert [(seen.line, seen.body) for seen in running.received] == [(f"POST {EVENTS} HTTP/1.1", body)] * 4


def test_refused_approval_has_the_message_of_the_service(user: User) -> None:
    with run_faulty_server(responds(400, b'{"error":"unknown event"}')) as running, pytest.raises(Refused) as caught:
        user.approve(running.url, ID)
    assert str(caught.value) == f"{running.url} answered 400: unknown event; {Refused.advice}"


def test_own_name_comes_from_the_instance_document(user: User) -> None:
    instance = responds(200, b'{"compute":{"name":"web_0"},"network":{}}')
    with run_faulty_server(
        instance, responds(200, document(event("other", "Scheduled", "web_1"), event(ID, "Scheduled", "_web_0")))
    ) as running:
        (change,) = user.changes(running.url, 1, mine=True)
    assert (change.event.id, running.targets[0]) == (ID, "/metadata/instance?api-version=2017-08-01&format=json")


def test_requests_have_the_required_headers(user: User) -> None:
    with run_faulty_server(responds()) as running:
        user.get(running.url)
    (seen,) = running.received
    assert seen.line == f"GET {EVENTS} HTTP/1.1"
    assert seen.headers == {
        "host": running.url.removeprefix("http://"),
        "accept-encoding": "identity",
        "metadata": "true",
        "accept": "application/json",
        "user-agent": f"forewarn/{__version__}",
        "connection": "close",
    }


def test_service_may_have_an_ipv6_address(user: User) -> None:
    with run_faulty_server(responds(200, BODY), host="::1") as running:
        assert user.get(running.url) == FOUND
    assert running.received[0].headers["host"] == running.url.removeprefix("http://")


def test_zone_id_is_not_in_the_host_header(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(host: str, port: int, **_: object) -> list[object]:
        assert host == "fe80::1%eth0"
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    with run_faulty_server(responds(200, BODY)) as running:
        monkeypatch.setattr(socket, "getaddrinfo", looked_up)
        assert user.get(running.url.replace("127.0.0.1", "[fe80::1%eth0]")) == FOUND
    assert running.received[0].headers["host"] == running.url.removeprefix("http://").replace("127.0.0.1", "[fe80::1]")


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_is_used(variable: str, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_faulty_server() as proxy, run_faulty_server(responds(200, BODY)) as running:
        monkeypatch.setenv(variable, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert user.get(running.url) == FOUND
    assert (proxy.received, running.targets) == ([], [EVENTS])


def test_closed_port_is_unreachable(user: User) -> None:
    with run_faulty_server() as running:
        url = running.url
    with pytest.raises(Unreachable, match=r"cannot reach .* refused; check that this is a VM"):
        user.get(url, retry_for=3.0)
    assert user.pauses == [1.0, 2.0]


def test_endpoint_may_be_set_in_the_environment(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_faulty_server(responds(200, BODY)) as running:
        monkeypatch.setenv("FOREWARN_ENDPOINT", running.url)
        assert user.get(None) == FOUND  # type: ignore[arg-type]  # no endpoint is given


SCRIPTS = st.lists(
    st.sampled_from(
        [
            closes_at_once, resets_after(GOOD[:40]), sends(GOOD[:-9]), responds(), responds(200, BODY),
            responds(200, b""),
            responds(200, b"{}"), responds(200, document(event(status="Started")), ETag='"2"', Forewarn_Wait="60"),
            responds(200, BODY, ETag='"1"'), responds(304, b"", ETag='"1"', Forewarn_Wait="60"), responds(404, b""),
            responds(410, b""), responds(429, b"", Retry_After="1"), responds(403, b""),
        ]
    ),
    max_size=6,
)  # fmt: skip
LAST = document(event("last"))


@given(SCRIPTS)
@settings(max_examples=examples(25))
def test_both_clients_behave_the_same(script: list[Behaviour]) -> None:
    traces = []
    for user in (SyncUser(), AsyncUser()):
        with run_faulty_server(*script, responds(200, LAST)) as running:
            changes = user.changes_until(running.url, "last")
        asked = [(seen.line, seen.headers.get("if-none-match")) for seen in running.received]
        traces.append((changes, asked, user.pauses, [type(trouble) for trouble in user.troubles]))
    assert traces[0] == traces[1]
