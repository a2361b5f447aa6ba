"""The flows of both clients: requests, timing, and the interpretation of responses."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client import (
    Appeared,
    Changed,
    ClientError,
    Document,
    Ending,
    Event,
    Gone,
    NoName,
    NoSuchEvent,
    NotAllowed,
    NotAnEvent,
    NotUnderstood,
    NoVersion,
    Refused,
    Started,
    TooSlow,
    Unavailable,
    Unreachable,
)
from forewarn.client.document import read_document
from forewarn.client.effects import Failure, Response
from tests.client.scripted_flow import ENDPOINT, ID, OTHER_ID, DelayedReply, ScriptedFlow, document, event, ok, response
from tests.client.test_changes import fold
from tests.support.examples import examples

NEWEST = "2020-07-01"
EVENTS = f"/metadata/scheduledevents?api-version={NEWEST}"
INSTANCE = "/metadata/instance?api-version=2017-08-01&format=json"
DOWN = Failure(Unreachable, "connection refused")
SLOW = Failure(TooSlow, "no answer")
CUT = Failure(NotUnderstood, "cut off")
WAITING = {"ETag": '"a.1"', "Forewarn_Wait": "60"}
NOT_MODIFIED = response(304, **WAITING)


def no_such_version(*named: str, status: int = 404) -> Response:
    return response(status, msgspec.json.encode({"error": "Bad request.", "newest-versions": named}))


def one(*resources: str, **more: Any) -> Event:
    found = read_document(document(event(ID, "Scheduled", *resources) | more))
    assert found is not None
    return found.events[0]


def instance(name: object = "web_0") -> Response:
    return ok(msgspec.json.encode({"compute": {"name": name}}))


def test_get_returns_the_document() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.document(None), ok(document(event()))) == Document(incarnation=1, events=(one(),))
    assert (talk.targets, talk.pauses) == ([EVENTS], [])


def test_empty_body_means_not_enabled_yet() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.document(None), ok(b"")) == Document(incarnation=None, events=())


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(DOWN, id="unreachable"),
        pytest.param(SLOW, id="too-slow"),
        pytest.param(CUT, id="cut-off"),
        pytest.param(ok(b"{}"), id="no-events"),
        pytest.param(ok(b"<html>"), id="no-json"),
        pytest.param(ok(b'{"Events":[{}]}'), id="no-id"),
        pytest.param(response(302), id="redirect"),
        pytest.param(response(304), id="304-to-no-etag"),
        pytest.param(response(408), id="408"),
        pytest.param(response(410), id="410"),
        pytest.param(response(429), id="429"),
        pytest.param(response(500), id="500"),
        pytest.param(response(503), id="503"),
    ],
)
def test_get_retries_transient_errors(trouble: Response | Failure) -> None:
    talk = ScriptedFlow()
    found = talk.run(talk.flows.document(None), trouble, trouble, ok())
    assert (found, talk.pauses, talk.targets) == (Document(incarnation=1), [1.0, 2.0], [EVENTS] * 3)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(response(400, b'{"error":"no"}'), Refused(ENDPOINT, 400, "no"), id="400"),
        pytest.param(response(403), NotAllowed(ENDPOINT, 403, ""), id="403"),
        pytest.param(response(405, b"x" * 999), Refused(ENDPOINT, 405, "x" * 300), id="405"),
        pytest.param(
            response(401, b'{"error":{"message":"who are you"}}'), NotAllowed(ENDPOINT, 401, "who are you"), id="401"
        ),
    ],
)
def test_get_does_not_retry_a_refusal(reply: Response, error: Refused) -> None:
    talk = ScriptedFlow()
    with pytest.raises(type(error)) as caught:
        talk.run(talk.flows.document(None), reply)
    assert (str(caught.value), vars(caught.value), talk.pauses) == (str(error), vars(error), [])


@pytest.mark.parametrize(
    ("trouble", "retry_for", "most"),
    [
        pytest.param(response(500), None, 30.0, id="30-s"),
        pytest.param(response(410), None, 70.0, id="70-s-for-410"),
        pytest.param(response(410), 12.0, 12.0, id="as-the-user-says"),
        pytest.param(DOWN, 0.0, 0.0, id="once"),
    ],
)
def test_get_raises_after_the_retry_window(trouble: Response | Failure, retry_for: float | None, most: float) -> None:
    talk = ScriptedFlow(chance=0.0)
    began_at = talk.time.now
    with pytest.raises(ClientError):
        talk.run(talk.flows.document(retry_for), *[trouble] * 100)
    assert most - 5.0 <= talk.time.now - began_at <= most


def test_response_time_counts_against_the_retry_window() -> None:
    talk = ScriptedFlow(retry_for=30.0)
    with pytest.raises(TooSlow):
        talk.run(talk.flows.document(None), DelayedReply(130.0, SLOW))


def test_pauses_double_up_to_five_seconds() -> None:
    talk = ScriptedFlow()
    talk.watch(*[DOWN] * 6)
    assert talk.pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_jitter_halves_pauses_at_most() -> None:
    talk = ScriptedFlow(chance=0.0)
    talk.watch(*[DOWN] * 4)
    assert talk.pauses == [0.5, 1.0, 2.0, 2.5]


@pytest.mark.parametrize(
    ("asked", "pause"),
    [("1", 1.5), ("7", 7.5), ("3600", 70.5), ("soon", 1.0), ("-1", 1.0), ("9" * 40, 1.0), ("0", 0.5)],
)
def test_retry_after_is_respected_up_to_a_limit(asked: str, pause: float) -> None:
    talk = ScriptedFlow()
    talk.watch(response(429, b"Too Many Requests", Retry_After=asked))
    assert talk.pauses == [pause]


def test_get_does_not_sleep_beyond_the_retry_window() -> None:
    talk = ScriptedFlow()
    with pytest.raises(Unavailable) as caught:
        talk.run(talk.flows.document(None), response(503, Retry_After="60"))
    assert (caught.value.status, caught.value.retry_after, talk.pauses) == (503, 60.0, [])


def test_trouble_is_set_until_a_request_succeeds() -> None:
    talk = ScriptedFlow()
    flow = talk.flows.document(None)
    next(flow)
    flow.send(DOWN)
    assert isinstance(talk.flows.trouble, Unreachable)
    next(flow)
    with pytest.raises(StopIteration):
        flow.send(ok())
    assert talk.flows.trouble is None


def test_first_timeout_applies_only_to_the_first_response() -> None:
    talk = ScriptedFlow()
    talk.watch(SLOW, response(503), ok(), ok())
    assert talk.timeouts == [130.0, 130.0, 130.0, 10.0]


def test_first_timeout_applies_again_after_a_day_without_requests() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), ok())
    talk.time.now += 24 * 3600 + 1
    talk.run(talk.flows.document(None), ok())
    assert talk.timeouts == [130.0, 130.0]


def test_name_request_does_not_use_up_the_first_timeout() -> None:
    talk = ScriptedFlow()
    talk.watch(instance(), ok(), mine=True)
    assert talk.timeouts == [10.0, 130.0]


def test_long_poll_extends_the_timeout() -> None:
    talk = ScriptedFlow(timeout=7.0)
    talk.watch(ok(**WAITING), NOT_MODIFIED)
    assert talk.timeouts == [130.0, 67.0]


def test_newest_common_version_is_used_and_remembered() -> None:
    talk = ScriptedFlow()
    talk.watch(no_such_version("2019-08-01", "2019-04-01", "2019-01-01"), ok(), ok())
    assert [target[-10:] for target in talk.targets] == [NEWEST, "2019-08-01", "2019-08-01"]


def test_version_may_be_refused_with_400() -> None:
    talk = ScriptedFlow()
    talk.watch(no_such_version("2019-01-01", status=400), ok())
    assert [target[-10:] for target in talk.targets] == [NEWEST, "2019-01-01"]


@pytest.mark.parametrize("body", [b"", b"not found", b'{"error":"no"}', b'{"newest-versions":"2017-11-01"}'])
def test_known_versions_are_tried_newest_first_if_none_is_listed(body: bytes) -> None:
    talk = ScriptedFlow()
    talk.watch(*[response(404, body)] * 4, ok(), ok())
    assert [target[-10:] for target in talk.targets] == [
        NEWEST, "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01", "2017-11-01",
    ]  # fmt: skip


def test_version_that_only_the_service_knows_is_tried_last() -> None:
    talk = ScriptedFlow()
    named = no_such_version("2031-01-01", "x", "2032-01-01&wait=9", "2030-01-01")
    talk.run(talk.flows.document(None), *[named] * 7, ok())
    assert talk.targets[-1] == "/metadata/scheduledevents?api-version=2031-01-01"


def test_service_without_any_known_version_raises_no_version() -> None:
    talk = ScriptedFlow()
    with pytest.raises(NoVersion) as caught:
        talk.run(talk.flows.document(None), *[response(404, b'{"error":"not found"}')] * 7)
    assert str(caught.value) == f"{ENDPOINT} answered 404: not found; {NoVersion.advice}"
    assert talk.pauses == []


def test_watch_keeps_polling_a_service_without_any_known_version() -> None:
    talk = ScriptedFlow()
    assert talk.watch(*[response(404)] * 14, ok(document(event()))) == [Appeared(one())]
    assert [target[-10:] for target in talk.targets].count(NEWEST) == 3


def test_after_an_outage_the_newest_version_is_tried_again() -> None:
    talk = ScriptedFlow()
    talk.watch(no_such_version("2019-08-01"), ok(), DOWN, ok())
    assert [target[-10:] for target in talk.targets] == [NEWEST, "2019-08-01", "2019-08-01", NEWEST]


def test_older_version_is_used_for_an_hour_before_the_newest_is_tried_again() -> None:
    """Older versions hide whole event types, and the service may have been upgraded."""
    talk = ScriptedFlow()
    older, hour = no_such_version("2019-08-01"), DelayedReply(3600, ok())
    talk.watch(older, ok(), hour, older, ok(), hour, ok(), hour, ok())
    assert [target[-10:] for target in talk.targets] == [
        NEWEST,
        "2019-08-01",
        "2019-08-01",
        NEWEST,
        "2019-08-01",
        "2019-08-01",
        NEWEST,
        NEWEST,
        NEWEST,
    ]


def test_approval_uses_the_remembered_version() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), no_such_version("2019-01-01"), ok())
    talk.run(talk.flows.approve([ID], None), response(200))
    assert talk.targets[-1][-10:] == "2019-01-01"


def test_version_is_remembered_after_a_refusal() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), no_such_version("2019-01-01"), ok())
    with pytest.raises(Refused):
        talk.run(talk.flows.approve([ID], None), response(400))
    talk.run(talk.flows.document(None), ok())
    assert talk.targets[-1][-10:] == "2019-01-01"


def test_failure_during_version_fallback_is_raised() -> None:
    talk = ScriptedFlow()
    with pytest.raises(Unreachable):
        talk.run(talk.flows.document(0.0), no_such_version("2019-01-01"), DOWN)


def test_approval_contains_the_event_ids() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.approve([one(), OTHER_ID.lower()], None), response(200))
    (send,) = talk.sent
    body = f'{{"StartRequests":[{{"EventId":"{ID}"}},{{"EventId":"{OTHER_ID.lower()}"}}]}}'
    assert send.request == ("POST", EVENTS, (("Content-Type", "application/json"),), body.encode())


def started(id_: str = ID) -> Event:
    found = read_document(document(event(id_, "Started")))
    assert found is not None
    return found.events[0]


def test_started_event_is_not_approved_and_the_client_says_so() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.approve([started()], None)) == ()
    assert (talk.sent, talk.messages) == ([], [f"event {ID} has started: it needs no approval, and none is sent"])


def test_scheduled_events_are_approved_without_the_started_ones() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.approve([started(OTHER_ID), one()], None), response(200)) == (ID,)
    assert [send.request.body for send in talk.sent] == [f'{{"StartRequests":[{{"EventId":"{ID}"}}]}}'.encode()]
    assert len(talk.messages) == 1


@pytest.mark.parametrize("given", [ID.lower(), one()], ids=["id", "older event"])
def test_event_that_was_started_in_the_last_document_is_not_approved(given: Event | str) -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), ok(document(event(ID, "Started"))))
    talk.run(talk.flows.document(None), response(200, b""))
    assert talk.run(talk.flows.approve([given], None)) == ()
    talk.run(talk.flows.document(None), ok(document()))
    assert talk.run(talk.flows.approve([given], None), response(200)) == (getattr(given, "id", given),)


def test_approval_is_retried_until_it_is_acknowledged() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.approve([ID], None), SLOW, DOWN, response(500), response(204))
    assert (talk.pauses, len({send.request for send in talk.sent})) == ([1.0, 2.0, 4.0], 1)


def test_refused_approval_is_not_retried() -> None:
    talk = ScriptedFlow()
    with pytest.raises(Refused) as caught:
        talk.run(talk.flows.approve([ID], None), response(400, b'{"error":"unknown event"}'))
    assert (caught.value.status, caught.value.message) == (400, "unknown event")


def test_approval_of_an_unknown_event_is_not_retried_in_other_versions() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), no_such_version("2019-01-01"), ok())
    for _ in range(2):
        with pytest.raises(NoSuchEvent) as caught:
            talk.run(talk.flows.approve([ID], None), response(404, b'{"error":"no such event"}'))
        assert str(caught.value) == f"{ENDPOINT} answered 404: no such event; {NoSuchEvent.advice}"
    assert [target[-10:] for target in talk.targets[2:]] == ["2019-01-01", "2019-01-01"]


def test_approval_as_the_first_request_finds_a_version() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.approve([ID], None), response(404), response(404), response(200))
    assert [target[-10:] for target in talk.targets] == [NEWEST, "2019-08-01", "2019-04-01"]


def test_approval_refused_in_all_versions_raises_no_such_event() -> None:
    talk = ScriptedFlow()
    with pytest.raises(NoSuchEvent):
        talk.run(talk.flows.approve([ID], None), *[response(404)] * 7)


def test_approval_falls_back_after_a_downgrade_of_the_service() -> None:
    talk = ScriptedFlow()
    talk.run(talk.flows.document(None), ok())
    talk.run(talk.flows.approve([ID], None), no_such_version("2019-01-01", "2017-11-01"), response(200))
    assert [target[-10:] for target in talk.targets] == [NEWEST, NEWEST, "2019-01-01"]


def test_approval_with_only_unknown_versions_raises_no_version() -> None:
    talk = ScriptedFlow()
    with pytest.raises(NoVersion):
        talk.run(talk.flows.approve([ID], None), *[no_such_version()] * 7)


@pytest.mark.parametrize("given", ["", "\ud800", "ä", 17, None, b"x"])
def test_only_events_and_ids_can_be_approved(given: Any) -> None:
    talk = ScriptedFlow()
    with pytest.raises(NotAnEvent):
        talk.run(talk.flows.approve([given], None))


def test_name_is_requested_once() -> None:
    talk = ScriptedFlow()
    names = [talk.run(talk.flows.name(None), instance()), talk.run(talk.flows.name(None))]
    assert (names, talk.targets) == (["web_0", "web_0"], [INSTANCE])


def test_given_name_is_not_requested() -> None:
    talk = ScriptedFlow(name="vm7")
    assert (talk.run(talk.flows.name(None)), talk.sent) == ("vm7", [])


def test_name_request_falls_back_to_a_version_of_the_service() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.name(None), no_such_version("2021-02-01"), instance()) == "web_0"
    assert talk.targets[-1] == "/metadata/instance?api-version=2021-02-01&format=json"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(ok(b"{}"), id="nothing"),
        pytest.param(ok(b"[]"), id="a-list"),
        pytest.param(ok(b'{"compute":7}'), id="no-compute"),
        pytest.param(instance(""), id="empty"),
        pytest.param(instance(" "), id="blank"),
        pytest.param(instance(7), id="a-number"),
        pytest.param(response(404), id="404"),
    ],
)
def test_missing_name_raises_no_name(reply: Response) -> None:
    talk = ScriptedFlow()
    with pytest.raises(NoName, match=r"pass the VM's resource name with name="):
        talk.run(talk.flows.name(None), reply)


def test_name_request_is_retried_after_garbage() -> None:
    talk = ScriptedFlow()
    assert talk.run(talk.flows.name(None), ok(b'{"comp'), DOWN, instance()) == "web_0"


def test_watch_reports_an_event_from_announcement_to_end() -> None:
    started = one(EventStatus="Started", NotBefore="")
    talk = ScriptedFlow()
    changes = talk.watch(ok(), ok(document(event())), ok(document(event(status="Started"))), ok())
    assert changes == [Appeared(one()), Started(started, one()), Gone(started, Ending.FINISHED)]


def test_watch_polls_once_a_second() -> None:
    talk = ScriptedFlow()
    talk.watch(ok(), DelayedReply(0.25, ok()), DelayedReply(3.0, ok()), ok())
    assert talk.pauses == [1.0, 0.75, 1.0]


def test_watch_does_not_report_known_events() -> None:
    talk = ScriptedFlow()
    known = read_document(document(event(), event(OTHER_ID)))
    changes = talk.run_until_exhausted(talk.flows.watch(mine=False, since=known), [ok(document(event()))])
    assert [type(change) for change in changes] == [Gone]


def test_watch_with_mine_reports_only_own_events() -> None:
    talk = ScriptedFlow()
    changes = talk.watch(
        instance("B"),
        ok(document(event(ID, "Scheduled", "a"))),
        ok(document(event(ID, "Scheduled", "a", "_b"))),
        ok(document(event(ID, "Scheduled", "_b"))),
        ok(document(event(ID, "Scheduled", "a"))),
        mine=True,
    )
    assert changes == [
        Appeared(one("a", "_b")),
        Changed(one("_b"), one("a", "_b")),
        Gone(one("_b"), Ending.WITHDRAWN),
    ]


def test_watch_with_mine_retries_until_the_name_is_known() -> None:
    talk = ScriptedFlow()
    changes = talk.watch(DOWN, response(404), response(500), instance(), ok(document(event())), mine=True)
    assert (changes, talk.pauses[:3]) == ([Appeared(one())], [1.0, 2.0, 4.0])


def test_decreasing_incarnation_is_no_change() -> None:
    talk = ScriptedFlow()
    changes = talk.watch(
        ok(document(event(), incarnation=40)),
        DOWN,
        ok(document(event(), incarnation=1)),
        ok(document(event(), event(OTHER_ID), incarnation=1)),
    )
    assert [type(change) for change in changes] == [Appeared, Appeared]


def test_etag_is_sent_back_and_dropped_after_an_error() -> None:
    talk = ScriptedFlow()
    talk.watch(ok(ETag='"a.1"'), response(304), response(500), ok(ETag='"b.1"'), response(304))
    sent = [dict(send.request.headers).get("If-None-Match") for send in talk.sent]
    assert sent == [None, '"a.1"', '"a.1"', None, '"b.1"']


@pytest.mark.parametrize("etag", ["", "a\r\n b", "x" * 300, "ä"])
def test_unsendable_etag_is_ignored(etag: str) -> None:
    talk = ScriptedFlow()
    talk.watch(ok(ETag=etag, Forewarn_Wait="60"), ok())
    assert (talk.sent[1].request.headers, talk.targets[1], talk.pauses) == ((), EVENTS, [1.0, 1.0])


def test_long_poll_is_used_if_offered() -> None:
    talk = ScriptedFlow()
    talk.watch(ok(**WAITING), DelayedReply(60.0, NOT_MODIFIED), DelayedReply(60.0, NOT_MODIFIED))
    assert talk.targets == [EVENTS, f"{EVENTS}&wait=60", f"{EVENTS}&wait=60"]
    assert talk.pauses == [0.25]


def test_long_poll_with_a_change_is_followed_by_a_quick_poll() -> None:
    talk = ScriptedFlow()
    talk.watch(ok(**WAITING), ok(document(event()), ETag='"a.2"', Forewarn_Wait="60"), NOT_MODIFIED)
    assert talk.pauses == [0.25, 0.25, 1.0]


@pytest.mark.parametrize("reply", [NOT_MODIFIED, ok(**WAITING)], ids=["304", "the-same-again"])
def test_immediate_response_to_a_long_poll_keeps_the_interval(reply: Response) -> None:
    talk = ScriptedFlow()
    talk.watch(ok(**WAITING), reply, reply, reply)
    assert talk.pauses == [0.25, 1.0, 1.0, 1.0]


def test_long_polls_follow_the_current_offer() -> None:
    talk = ScriptedFlow()
    talk.watch(ok(**WAITING), response(304), response(304), NOT_MODIFIED, NOT_MODIFIED)
    assert ["wait" in target for target in talk.targets] == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("offer", "wait"), [("60", 60), ("30", 30), ("3600", 60), ("0", None), ("long", None), ("-3", None), ("1.5", None)]
)
def test_offered_wait_is_limited(offer: str, wait: int | None) -> None:
    talk = ScriptedFlow()
    talk.watch(ok(ETag='"a"', Forewarn_Wait=offer), response(304))
    assert talk.targets[1] == EVENTS + (f"&wait={wait}" if wait else "")


def test_wait_option_limits_or_disables_long_polls() -> None:
    short, never = ScriptedFlow(wait=5), ScriptedFlow(wait=0)
    for talk in (short, never):
        talk.watch(ok(**WAITING), NOT_MODIFIED)
    assert (short.targets[1], never.targets[1]) == (f"{EVENTS}&wait=5", EVENTS)


TROUBLES = st.sampled_from(
    [
        DOWN, SLOW, CUT, ok(b""), ok(b"{}"), ok(b"null"), ok(b'{"DocumentIncarnation":1'), ok(b"\xff"), response(302),
        response(400), response(403), response(404), no_such_version("2019-01-01"), response(410),
        response(429, Retry_After="1"),
        response(500), response(599), response(304), response(204), response(100),
    ]
)  # fmt: skip
WIRE_EVENTS = st.builds(
    event,
    st.sampled_from([ID, ID.lower(), OTHER_ID, "third"]),
    st.sampled_from(["Scheduled", "Started", "Paused"]),
    st.sampled_from(["a", "_A", "b"]),
    st.sampled_from(["a", "b", "c"]),
    NotBefore=st.sampled_from(["", "soon", "2016-09-19T18:29:47Z", "Mon, 19 Sep 2016 18:29:47 GMT"]),
    EventType=st.sampled_from(["Reboot", "Teleport"]),
)
DOCUMENTS = st.builds(
    lambda events, incarnation, headers: ok(document(*events, incarnation=incarnation), **headers),
    st.lists(WIRE_EVENTS, max_size=4),
    st.integers(0, 5),
    st.sampled_from([{}, WAITING, {"ETag": '"b"'}, {"Forewarn_Wait": "60"}]),
)


def last_document(replies: Iterable[Response | Failure]) -> Document:
    """Return the last document among the replies."""
    found = Document()
    for reply in replies:
        if isinstance(reply, Response) and reply.status == 200 and b'"Events"' in reply.body:
            found = read_document(reply.body) or found
    return found


@given(st.lists(DOCUMENTS | TROUBLES, max_size=12), st.sampled_from([None, "a"]))
@settings(max_examples=examples(300))
def test_folded_changes_are_the_last_document_after_any_replies(
    replies: list[Response | Failure], name: str | None
) -> None:
    talk = ScriptedFlow(name=name)
    changes = talk.watch(*replies, mine=name is not None)
    last = last_document(replies)
    shown = last if name is None else last.affecting(name)
    assert fold(changes) == {found.id.upper(): found for found in shown.events}
    assert len(talk.sent) == len(replies)


@given(st.lists(DOCUMENTS | TROUBLES, max_size=12))
@settings(max_examples=examples(100))
def test_watch_never_exceeds_five_requests_per_second(replies: list[Response | Failure]) -> None:
    """Only the version fallback sends requests without a pause, once."""
    talk = ScriptedFlow(chance=0.0)
    began_at = talk.time.now
    talk.watch(*(reply for reply in replies if getattr(reply, "status", 0) != 404))
    assert len(talk.sent) <= 1 + (talk.time.now - began_at) / 0.2
