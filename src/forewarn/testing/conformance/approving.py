"""The life of one event that may be approved: what must not approve it, the approval, and what comes after.

These are the only requests that can change anything. All of them name the event that the user has given free, or none.
"""

import select
import uuid
from collections.abc import Callable, Mapping

from forewarn.testing.conformance.course import Approval, Outcome, is_scheduled, is_started
from forewarn.testing.conformance.document import Document, Entry, NotChecked, id_of
from forewarn.testing.conformance.seen import QUERY, Seen, conditional, etag
from forewarn.testing.conformance.talking import CONTINUE, METADATA, SCHEDULED_EVENTS, Answer, Line, Request, Unanswered
from forewarn.wire.approval import encode_approval
from forewarn.wire.protocol import BYTE_ORDER_MARK, NEWEST_VERSION, PREVIEW_VERSION, VERSIONS

LOOKS = 10
"""How many times, a second apart, we look whether an approved event has started."""

HELD_FOR = 0.5
"""How long, in seconds, a request is held at least before the approval that ends its waiting is sent."""

OTHER_VERSION = VERSIONS[1]
UNSUPPORTED = "2001-01-01"
LARGE_BODY = 1024 * 1024
JSON = ("Content-Type", "application/json")


def post(
    body: bytes | None,
    *headers: tuple[str, str],
    version: str = f"?api-version={NEWEST_VERSION}",
    metadata: bool = True,
    method: str = "POST",
    connection: str | None = "close",
) -> Request:
    """Write an approval, or what looks like one."""
    fields = (METADATA, *headers) if metadata else headers
    target = f"{SCHEDULED_EVENTS}{version}"
    return Request(method=method, target=target, headers=fields, body=body, connection=connection)


def refused_requests(id_: str) -> Mapping[str, Request]:
    """Return what has to be refused, by what is wrong with it."""
    right = encode_approval([id_])
    unknown = str(uuid.uuid4()).upper()
    return {
        "no-header": post(right, JSON, version=f"?api-version={OTHER_VERSION}", metadata=False),
        "forwarded": post(right, JSON, ("X-Forwarded-For", "203.0.113.7")),
        "version-missing": post(right, JSON, version=""),
        "version-twice": post(right, JSON, version=f"?api-version={NEWEST_VERSION}&api-version={OTHER_VERSION}"),
        "version-unsupported": post(right, JSON, version=f"?api-version={UNSUPPORTED}"),
        "no-json": post(b"StartRequests", JSON),
        "no-object": post(b"[]", JSON),
        "no-start-requests": post(b"{}", JSON),
        "no-list": post(b'{"StartRequests":{}}', JSON),
        "no-event-id": post(b'{"StartRequests":[{"EventId":7}]}', JSON),
        "names": post(right.replace(b"StartRequests", b"startRequests"), JSON),
        "unknown-id": post(encode_approval([unknown]), JSON),
        "malformed-and-right": post(encode_approval([id_, "all"]), JSON),
        "unknown-and-right": post(encode_approval([id_, unknown]), JSON),
        "body-behind-version": post(b"StartRequests", JSON, version=f"?api-version={UNSUPPORTED}"),
        "put": post(right, JSON, method="PUT"),
        "delete": post(None, method="DELETE"),
    }


def accepted_requests(id_: str) -> Mapping[str, Request]:
    """Return what has to be accepted of an event that was approved before, by what is special about it."""
    right = encode_approval([id_])
    return {
        "again": post(right, JSON),
        "other-case": post(encode_approval([id_.swapcase()]), JSON),
        "twice": post(encode_approval([id_, id_]), JSON),
        "incarnation-number": post(right[:-1] + b',"DocumentIncarnation":1}', JSON),
        "incarnation-text": post(right[:-1] + b',"DocumentIncarnation":"1"}', JSON),
        "byte-order-mark": post(BYTE_ORDER_MARK + right, JSON),
        "no-content-type": post(right),
        "form": post(right, ("Content-Type", "application/x-www-form-urlencoded")),
        "text": post(right, ("Content-Type", "text/plain; charset=utf-8")),
        "if-none-match": post(right, JSON, ("If-None-Match", "*")),
        "other-version": post(right, JSON, version=f"?api-version={OTHER_VERSION}"),
        "preview-without-header": post(right, JSON, version=f"?api-version={PREVIEW_VERSION}", metadata=False),
        "wait": post(right, JSON, version=f"?api-version={NEWEST_VERSION}&wait=0"),
    }


def approve(seen: Seen, id_: str) -> Approval:
    """Lead the event through all that a client can do with it."""
    course = Approval(id_)
    course.first = _now(seen, id_)
    if course.first is not None:
        course.id = id_ = id_of(course.first)
    if is_scheduled(course.first):
        _try_in_vain(seen, course)
        _approve_for_good(seen, course)
    elif course.first is not None:
        course.answers["approve"] = _outcome(seen, post(encode_approval([id_]), JSON))
        _approve_nothing(seen, course, before=None)
    if course.first is not None:
        _approve_again(seen, course)
    if course.first is None or course.is_gone:
        course.answers["ended"] = _outcome(seen, post(encode_approval([id_]), JSON))
    return course


def _try_in_vain(seen: Seen, course: Approval) -> None:
    for name, request in refused_requests(course.id).items():
        course.answers[name] = _outcome(seen, request)
    expecting = post(encode_approval([course.id]), JSON, ("Expect", "100-continue"), metadata=False)
    course.answers["expect-refused"] = _first_answer(seen, expecting)
    _send_too_much(seen, course)
    course.untouched = _document(seen)
    _approve_nothing(seen, course, course.untouched)


def _approve_nothing(seen: Seen, course: Approval, before: Document | None) -> None:
    """Name no event. Whoever takes that for all of them is found out, as long as there is one to be approved."""
    course.answers["empty-list"] = _outcome(seen, post(encode_approval([]), JSON))
    after = _document(seen)
    if before is not None and after is not None:
        course.is_changed_by_nothing = before.event(course.id) != after.event(course.id)


def _send_too_much(seen: Seen, course: Approval) -> None:
    request = post(b'{"StartRequests":[]%s}' % (b" " * LARGE_BODY), JSON, connection=None)

    def talk(line: Line) -> Answer:
        line.send(request)
        answer = seen.hear(line)
        course.is_closed_after_too_much = answer.status >= 400 and line.rest(seen.timeout)[1]
        return answer

    course.answers["too-large"] = _outcome_of(seen, talk)


def _approve_for_good(seen: Seen, course: Approval) -> None:
    with _held(seen) as held:
        course.answers["approve"] = _outcome(seen, post(encode_approval([course.id]), JSON))
        course.after = _started(seen, course.id)
        if course.after is None or is_scheduled(course.after.event(course.id)):
            return
        if held.line is not None:
            course.answers["held"] = _read(held.line)
    seen.later.append(course.after)
    if is_started(course.after.event(course.id)):
        course.answers["started"] = _outcome(seen, post(encode_approval([course.id]), JSON))


def _approve_again(seen: Seen, course: Approval) -> None:
    for name, request in accepted_requests(course.id).items():
        course.answers[name] = _outcome(seen, request)
    expecting = post(encode_approval([course.id]), JSON, ("Expect", "100-continue"))
    course.answers["expect"] = _first_answer(seen, expecting)
    course.answers["expect-after"] = _whole_answer(seen, expecting)
    now = _document(seen)
    course.is_gone = now is not None and now.event(course.id) is None


class _Held:
    """A request that is held while something else happens; without a line, if the endpoint holds none."""

    def __init__(self, line: Line | None) -> None:
        self.line = line

    def __enter__(self) -> "_Held":
        return self

    def __exit__(self, *exit_: object) -> None:
        if self.line is not None:
            self.line.__exit__(*exit_)


def _held(seen: Seen) -> _Held:
    try:
        current = seen.ask_again(QUERY)
        if current.header("forewarn-wait") is None:
            return _Held(None)
        waiting = conditional(etag(current), f"{QUERY.target}&wait=60")
        line = seen.line()
    except (NotChecked, Unanswered):
        return _Held(None)
    line.send(waiting)
    # Whoever holds nothing answers now; and whoever holds it has it before the approval comes on another connection.
    select.select([line], [], [], HELD_FOR)
    return _Held(line)


def _read(line: Line) -> Outcome:
    try:
        return line.answer()
    except Unanswered as error:
        return error


def _started(seen: Seen, id_: str) -> Document | None:
    """Wait until the event has started, or is gone; return the last document that could be read."""
    document = _document(seen)
    for _ in range(LOOKS):
        if document is None or not is_scheduled(document.event(id_)):
            break
        seen.pace.rest(1.0)
        document = _document(seen)
    return document


def _first_answer(seen: Seen, request: Request) -> Outcome:
    """Send a request without its body, and return the first answer."""

    def talk(line: Line) -> Answer:
        line.send_head(request)
        return seen.hear(line)

    return _outcome_of(seen, talk)


def _whole_answer(seen: Seen, request: Request) -> Outcome:
    """Send a request and, when that is wanted, its body; return the last answer."""

    def talk(line: Line) -> Answer:
        line.send_head(request)
        answer = seen.hear(line)
        if answer.status != CONTINUE:
            return answer
        line.send_bytes(request.body or b"")
        return seen.hear(line)

    return _outcome_of(seen, talk)


def _outcome_of(seen: Seen, talk: Callable[[Line], Answer]) -> Outcome:
    try:
        return seen.converse(talk)
    except Unanswered as error:
        return error


def _outcome(seen: Seen, request: Request) -> Outcome:
    try:
        return seen.ask_again(request)
    except Unanswered as error:
        return error


def _document(seen: Seen) -> Document | None:
    try:
        return seen.read_document()
    except (NotChecked, Unanswered):
        return None


def _now(seen: Seen, id_: str) -> Entry | None:
    try:
        return seen.document().event(id_)
    except (NotChecked, Unanswered):
        return None
