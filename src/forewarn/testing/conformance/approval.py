"""Approval life cycle of one event: invalid approvals, the approval, repeated approvals.

Only these requests can change something. They name the event that the user passed with --approve, or no event."""

import select
import uuid
from collections.abc import Callable, Mapping, Sequence

from forewarn.testing.conformance.document import CheckSkipped, Document, EventFields, event_id
from forewarn.testing.conformance.probe import (
    EVENTS_QUERY,
    ApprovalTrace,
    Probe,
    ResponseOrError,
    SharedApproval,
    conditional,
    etag,
    is_scheduled,
    is_started,
)
from forewarn.testing.conformance.raw_http import (
    CONTINUE,
    EVENTS_PATH,
    METADATA_HEADER,
    RawConnection,
    Request,
    RequestFailed,
    Response,
)
from forewarn.wire.approval import encode_approval
from forewarn.wire.protocol import BYTE_ORDER_MARK, NEWEST_VERSION, PREVIEW_VERSION, VERSIONS

MAX_POLLS = 10
"""How many polls, one second apart, wait for the start of an approved event."""

LONG_POLL_DELAY = 0.5
"""The seconds between a long poll and the approval that makes the endpoint respond to it."""

MAX_INTERIM_RESPONSES = 3
"""How many responses to read after a body until the final one: an endpoint may repeat `100 Continue`."""

OTHER_VERSION = VERSIONS[1]
UNSUPPORTED_VERSION = "2001-01-01"
LARGE_BODY_BYTES = 1024 * 1024
JSON_CONTENT_TYPE = ("Content-Type", "application/json")


def approval_request(
    body: bytes | None,
    *headers: tuple[str, str],
    version: str = f"?api-version={NEWEST_VERSION}",
    metadata: bool = True,
    method: str = "POST",
    connection: str | None = "close",
) -> Request:
    """Return an approval, which may be invalid."""
    fields = (METADATA_HEADER, *headers) if metadata else headers
    target = f"{EVENTS_PATH}{version}"
    return Request(method=method, target=target, headers=fields, body=body, connection=connection)


def refused_requests(id_: str) -> Mapping[str, Request]:
    """Return approvals that the endpoint must refuse, by their defect."""
    right = encode_approval([id_])
    unknown = str(uuid.uuid4()).upper()
    return {
        "no-header": approval_request(
            right, JSON_CONTENT_TYPE, version=f"?api-version={OTHER_VERSION}", metadata=False
        ),
        "forwarded": approval_request(right, JSON_CONTENT_TYPE, ("X-Forwarded-For", "203.0.113.7")),
        "version-missing": approval_request(right, JSON_CONTENT_TYPE, version=""),
        "version-twice": approval_request(
            right, JSON_CONTENT_TYPE, version=f"?api-version={NEWEST_VERSION}&api-version={OTHER_VERSION}"
        ),
        "version-unsupported": approval_request(
            right, JSON_CONTENT_TYPE, version=f"?api-version={UNSUPPORTED_VERSION}"
        ),
        "no-json": approval_request(b"StartRequests", JSON_CONTENT_TYPE),
        "no-object": approval_request(b"[]", JSON_CONTENT_TYPE),
        "no-start-requests": approval_request(b"{}", JSON_CONTENT_TYPE),
        "no-list": approval_request(b'{"StartRequests":{}}', JSON_CONTENT_TYPE),
        "no-event-id": approval_request(b'{"StartRequests":[{"EventId":7}]}', JSON_CONTENT_TYPE),
        "names": approval_request(right.replace(b"StartRequests", b"startRequests"), JSON_CONTENT_TYPE),
        "unknown-id": approval_request(encode_approval([unknown]), JSON_CONTENT_TYPE),
        "malformed-and-right": approval_request(encode_approval([id_, "all"]), JSON_CONTENT_TYPE),
        "unknown-and-right": approval_request(encode_approval([id_, unknown]), JSON_CONTENT_TYPE),
        "body-behind-version": approval_request(
            b"StartRequests", JSON_CONTENT_TYPE, version=f"?api-version={UNSUPPORTED_VERSION}"
        ),
        "put": approval_request(right, JSON_CONTENT_TYPE, method="PUT"),
        "delete": approval_request(None, method="DELETE"),
    }


def accepted_requests(id_: str) -> Mapping[str, Request]:
    """Return approvals of an already approved event that the endpoint must accept, by their peculiarity."""
    right = encode_approval([id_])
    return {
        "again": approval_request(right, JSON_CONTENT_TYPE),
        "other-case": approval_request(encode_approval([id_.swapcase()]), JSON_CONTENT_TYPE),
        "twice": approval_request(encode_approval([id_, id_]), JSON_CONTENT_TYPE),
        "incarnation-number": approval_request(right[:-1] + b',"DocumentIncarnation":1}', JSON_CONTENT_TYPE),
        "incarnation-text": approval_request(right[:-1] + b',"DocumentIncarnation":"1"}', JSON_CONTENT_TYPE),
        "byte-order-mark": approval_request(BYTE_ORDER_MARK + right, JSON_CONTENT_TYPE),
        "no-content-type": approval_request(right),
        "form": approval_request(right, ("Content-Type", "application/x-www-form-urlencoded")),
        "text": approval_request(right, ("Content-Type", "text/plain; charset=utf-8")),
        "if-none-match": approval_request(right, JSON_CONTENT_TYPE, ("If-None-Match", "*")),
        "other-version": approval_request(right, JSON_CONTENT_TYPE, version=f"?api-version={OTHER_VERSION}"),
        "preview-without-header": approval_request(
            right, JSON_CONTENT_TYPE, version=f"?api-version={PREVIEW_VERSION}", metadata=False
        ),
        "wait": approval_request(right, JSON_CONTENT_TYPE, version=f"?api-version={NEWEST_VERSION}&wait=0"),
    }


def run_approval(probe: Probe, id_: str, second_id: str | None = None) -> ApprovalTrace:
    """Send every kind of approval of the event, in the order of its life cycle.

    At the end, one approval names both the event and the second one.
    """
    trace = ApprovalTrace(id_)
    trace.initial = _current_event(probe, id_)
    if trace.initial is not None:
        trace.id = id_ = event_id(trace.initial)
    if is_scheduled(trace.initial):
        if second_id is None:
            _send_with_unknown_event(probe, trace)
        _send_invalid_approvals(probe, trace)
        _send_approval(probe, trace)
    elif trace.initial is not None:
        _send_named(probe, trace, "approve", approval_request(encode_approval([id_]), JSON_CONTENT_TYPE))
        _send_empty_approval(probe, trace, before=None)
    if trace.initial is not None:
        _repeat_approval(probe, trace)
    if second_id is not None:
        _send_for_both(probe, trace, second_id)
    if trace.initial is None or trace.is_gone:
        _send_named(probe, trace, "ended", approval_request(encode_approval([id_]), JSON_CONTENT_TYPE))
    return trace


def _send_with_unknown_event(probe: Probe, trace: ApprovalTrace) -> None:
    """Name the event second, behind an unknown one: with a single event, the only way to send two StartRequests.

    This comes first, because an endpoint that accepts an invalid approval starts the event.
    """
    ids = [str(uuid.uuid4()).upper(), trace.id]
    trace.shared = _send_shared_approval(probe, ids, first_is_unknown=True)
    trace.responses["unknown-first"] = trace.shared.response


def _send_for_both(probe: Probe, trace: ApprovalTrace, second_id: str) -> None:
    """Name a Scheduled event second, behind the event of the life cycle, which has started by now."""
    document = _read_document(probe)
    second = None if document is None else document.event(second_id)
    if document is None or second is None:
        trace.shared_skip_reason = f"event {second_id} is not in the document"
    elif not is_scheduled(second):
        trace.shared_skip_reason = f"event {second_id} had already started"
    elif document.event(trace.id) is None:
        trace.shared_skip_reason = f"event {trace.id} had ended before an approval could name both"
    else:
        ids = [trace.id, event_id(second)]
        trace.shared = _send_shared_approval(probe, ids, first_is_unknown=False)
        if trace.shared.is_pending:
            _send(probe, approval_request(encode_approval(ids[1:]), JSON_CONTENT_TYPE))
            _note_start(trace, _read_document(probe))


def _send_shared_approval(probe: Probe, ids: Sequence[str], *, first_is_unknown: bool) -> SharedApproval:
    response = _send(probe, approval_request(encode_approval(ids), JSON_CONTENT_TYPE))
    shared = SharedApproval(first_is_unknown=first_is_unknown, second_id=ids[1], response=response)
    if _is_accepted(response):
        document = _wait_for_start(probe, ids[1])
        shared.is_pending = document is not None and is_scheduled(document.event(ids[1]))
    return shared


def _note_start(trace: ApprovalTrace, document: Document | None) -> None:
    """Note whether the event that an approval named second has now started, after an approval of its own."""
    if trace.shared is not None and trace.shared.is_pending and document is not None:
        trace.shared.started_alone = not is_scheduled(document.event(trace.shared.second_id))
        trace.shared.is_pending = not trace.shared.started_alone


def _is_accepted(outcome: ResponseOrError) -> bool:
    return isinstance(outcome, Response) and outcome.status < 400


def _send_invalid_approvals(probe: Probe, trace: ApprovalTrace) -> None:
    for name, request in refused_requests(trace.id).items():
        _send_named(probe, trace, name, request)
        if trace.shared is not None and trace.shared.is_pending and _is_accepted(trace.responses[name]):
            _note_start(trace, _read_document(probe))
    expecting = approval_request(
        encode_approval([trace.id]), JSON_CONTENT_TYPE, ("Expect", "100-continue"), metadata=False
    )
    trace.requests["expect-refused"] = expecting
    trace.responses["expect-refused"] = _first_response(probe, expecting)
    _send_large_body(probe, trace)
    trace.before_approval = _read_document(probe)
    _send_empty_approval(probe, trace, trace.before_approval)


def _send_empty_approval(probe: Probe, trace: ApprovalTrace, before: Document | None) -> None:
    """Send an approval without events, while one can still be approved: the endpoint must not approve all of them."""
    _send_named(probe, trace, "empty-list", approval_request(encode_approval([]), JSON_CONTENT_TYPE))
    after = _read_document(probe)
    if before is not None and after is not None:
        trace.is_changed_by_empty_list = before.event(trace.id) != after.event(trace.id)


def _send_large_body(probe: Probe, trace: ApprovalTrace) -> None:
    request = approval_request(
        b'{"StartRequests":[]%s}' % (b" " * LARGE_BODY_BYTES), JSON_CONTENT_TYPE, connection=None
    )

    def exchange(connection: RawConnection) -> Response:
        connection.send(request)
        response = probe.receive(connection)
        trace.is_closed_after_large_body = response.status >= 400 and connection.read_until_close(probe.timeout)[1]
        return response

    trace.requests["too-large"] = request
    trace.responses["too-large"] = _exchange(probe, exchange)


def _send_approval(probe: Probe, trace: ApprovalTrace) -> None:
    with _open_long_poll(probe) as long_poll:
        _send_named(probe, trace, "approve", approval_request(encode_approval([trace.id]), JSON_CONTENT_TYPE))
        trace.after_approval = _wait_for_start(probe, trace.id)
        if trace.before_approval is not None and is_scheduled(trace.before_approval.event(trace.id)):
            _note_start(trace, trace.after_approval)
        if trace.after_approval is None or is_scheduled(trace.after_approval.event(trace.id)):
            return
        if long_poll.connection is not None:
            trace.responses["held"] = _read_response(long_poll.connection)
    probe.later_documents.append(trace.after_approval)
    if is_started(trace.after_approval.event(trace.id)):
        _send_named(probe, trace, "started", approval_request(encode_approval([trace.id]), JSON_CONTENT_TYPE))


def _repeat_approval(probe: Probe, trace: ApprovalTrace) -> None:
    for name, request in accepted_requests(trace.id).items():
        _send_named(probe, trace, name, request)
    expecting = approval_request(encode_approval([trace.id]), JSON_CONTENT_TYPE, ("Expect", "100-continue"))
    trace.requests |= {"expect": expecting, "expect-after": expecting}
    trace.responses["expect"] = _first_response(probe, expecting)
    trace.responses["expect-after"] = _final_response(probe, expecting)
    now = _read_document(probe)
    trace.is_gone = now is not None and now.event(trace.id) is None


class _LongPoll:
    """A pending long poll; `connection` is None if the endpoint has no long polls."""

    def __init__(self, connection: RawConnection | None) -> None:
        self.connection = connection

    def __enter__(self) -> "_LongPoll":
        return self

    def __exit__(self, *exit_: object) -> None:
        if self.connection is not None:
            self.connection.__exit__(*exit_)


def _open_long_poll(probe: Probe) -> _LongPoll:
    try:
        current = probe.send(EVENTS_QUERY)
        if current.header("forewarn-wait") is None:
            return _LongPoll(None)
        request = conditional(etag(current), f"{EVENTS_QUERY.target}&wait=60")
        connection = probe.connect()
    except (CheckSkipped, RequestFailed):
        return _LongPoll(None)
    connection.send(request)
    # An endpoint that does not hold the request responds within this time; an endpoint that does has received it
    # before the approval arrives on another connection.
    select.select([connection], [], [], LONG_POLL_DELAY)
    return _LongPoll(connection)


def _read_response(connection: RawConnection) -> ResponseOrError:
    try:
        return connection.read_response()
    except RequestFailed as error:
        return error


def _wait_for_start(probe: Probe, id_: str) -> Document | None:
    """Wait until the event has started or disappeared; return the last document that could be read."""
    document = _read_document(probe)
    for _ in range(MAX_POLLS):
        if document is None or not is_scheduled(document.event(id_)):
            break
        probe.pace.pause(1.0)
        document = _read_document(probe)
    return document


def _first_response(probe: Probe, request: Request) -> ResponseOrError:
    """Send a request without its body, and return the first response."""

    def exchange(connection: RawConnection) -> Response:
        connection.send_head(request)
        return probe.receive(connection)

    return _exchange(probe, exchange)


def _final_response(probe: Probe, request: Request) -> ResponseOrError:
    """Send a request and, after `100 Continue`, its body; return the final response."""

    def exchange(connection: RawConnection) -> Response:
        connection.send_head(request)
        response = probe.receive(connection)
        if response.status != CONTINUE:
            return response
        connection.send_bytes(request.body or b"")
        for _ in range(MAX_INTERIM_RESPONSES):
            response = probe.receive(connection)
            if response.status != CONTINUE:
                break
        return response

    return _exchange(probe, exchange)


def _exchange(probe: Probe, exchange: Callable[[RawConnection], Response]) -> ResponseOrError:
    try:
        return probe.with_retries(exchange)
    except RequestFailed as error:
        return error


def _send(probe: Probe, request: Request) -> ResponseOrError:
    try:
        return probe.send(request)
    except RequestFailed as error:
        return error


def _send_named(probe: Probe, trace: ApprovalTrace, name: str, request: Request) -> None:
    trace.requests[name] = request
    trace.responses[name] = _send(probe, request)


def _read_document(probe: Probe) -> Document | None:
    try:
        return probe.read_document()
    except (CheckSkipped, RequestFailed):
        return None


def _current_event(probe: Probe, id_: str) -> EventFields | None:
    try:
        return probe.document().event(id_)
    except (CheckSkipped, RequestFailed):
        return None
