"""The document, field by field, and the headers it comes with (section “The document”)."""

import re
from collections.abc import Callable, Sequence

from forewarn.core.text import is_guid
from forewarn.testing.conformance.course import is_scheduled, is_started
from forewarn.testing.conformance.document import Document, Entry, NotChecked, Otherwise, id_of
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import field, of_events, one_of, quoted
from forewarn.testing.conformance.seen import QUERY, Seen, conditional
from forewarn.testing.conformance.talking import Answer
from forewarn.wire.http_date import format_http_date, parse_date
from forewarn.wire.protocol import NEWEST_VERSION

SECTION = "The document"

KEYS = (
    "EventId",
    "EventStatus",
    "EventType",
    "ResourceType",
    "Resources",
    "NotBefore",
    "Description",
    "EventSource",
    "DurationInSeconds",
)
TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")

STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SERVER = re.compile(r"IMDS/\d+\.\d+\.\d+\.\d+", re.ASCII)

DOCUMENT_KEYS = "The keys of the document are `DocumentIncarnation` and `Events`, in this order, and no others."
EVENT_KEYS = (
    "The keys of an event are `EventId`, `EventStatus`, `EventType`, `ResourceType`, `Resources`, `NotBefore`, "
    "`Description`, `EventSource` and `DurationInSeconds`, in this order, and no others; older [versions](#versions) "
    "leave some out."
)
HEADERS = (
    "A 200 has `Content-Type: application/json; charset=utf-8`, `Content-Length`, `Date`, "
    "`Server: IMDS/` and four numbers, `x-ms-request-id` and `ETag`."
)
UNCHANGED = "a query that sends it back in `If-None-Match` gets 304 without a body as long as nothing has changed."
LISTS = "A list of ETags, weak ones and `*` are understood (O)."
INCARNATION = "goes up by one with every change of the events: the same number means the same events."
EVENT_TYPE = (
    "| `EventType` | `Freeze`: paused for a moment. `Reboot`: memory is lost. `Redeploy`: another host, ephemeral "
    "disks are lost. `Preempt`: a low-priority VM is taken away. `Terminate`: the VM is going to be deleted |"
)
NOT_BEFORE = 'the earliest start, as an HTTP date; `""` once Started.'


def _compact(seen: Seen) -> None:
    body = seen.document().body
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Otherwise(f"the body is not UTF-8: {error}") from None
    if re.search(r"\s", STRING.sub('""', text)):
        raise Otherwise(f"there is white space between the values: {quoted(body)}")


def _document_keys(seen: Seen) -> None:
    keys = seen.document().keys
    if keys != ("DocumentIncarnation", "Events"):
        raise Otherwise(f"the keys are {', '.join(keys)}")


def _event_keys(seen: Seen) -> None:
    for event in seen.events():
        if tuple(event) != KEYS:
            raise Otherwise(f"the keys of an event are {', '.join(event)}; {_difference(list(event), KEYS)}")


def _older_keys(seen: Seen) -> None:
    """Which version has which field, the rows of the versions say; here, that there is no other, and their order."""
    older = [
        event for version, document in seen.documents().items() if version < NEWEST_VERSION for event in document.events
    ]
    if not older:
        raise NotChecked("there is no event")
    for event in older:
        known = [key for key in KEYS if key in event]
        if list(event) != known:
            raise Otherwise(f"the keys of an event are {', '.join(event)}; {_difference(list(event), known)}")


def _difference(keys: Sequence[str], right: Sequence[str]) -> str:
    """Say what to change about the keys of an event."""
    parts = [f"{word} {', '.join(some)}" for word, some in _by_word(keys, right) if some]
    return " and ".join(parts) or f"their order is to be {', '.join(right)}"


def _by_word(keys: Sequence[str], right: Sequence[str]) -> tuple[tuple[str, list[str]], ...]:
    too_many = [key for key in keys if key not in right]
    too_few = [key for key in right if key not in keys]
    return ("too many are", too_many), ("missing are", too_few)


def _incarnation(seen: Seen) -> None:
    told = seen.document().incarnation
    if not isinstance(told, int) or isinstance(told, bool) or told < 0:
        raise Otherwise(f"DocumentIncarnation is {quoted(told)}, no whole number")


def _same_number_same_events(seen: Seen) -> None:
    seen.documents()
    for before, after in seen.changes:
        if (before.incarnation == after.incarnation) != (before.events == after.events):
            raise Otherwise(
                f"incarnations {before.incarnation} and {after.incarnation} have "
                + ("the same events" if before.events == after.events else "different events")
            )


def _up_by_one(seen: Seen) -> None:
    if seen.approval is None:
        raise NotChecked("it takes an event that may be approved: --approve EVENTID")
    before, after, id_ = seen.approval.untouched, seen.approval.after, seen.approval.id
    if before is None or after is None or not is_scheduled(before.event(id_)):
        raise NotChecked(seen.approval.why_not())
    if is_scheduled(after.event(id_)) or _others(before, id_) != _others(after, id_):
        raise NotChecked("not exactly this event has changed")
    changes = 1 if after.event(id_) is not None else 2
    if not isinstance(before.incarnation, int) or not isinstance(after.incarnation, int):
        raise NotChecked("the incarnation is no number")
    if after.incarnation - before.incarnation != changes:
        raise Otherwise(f"{changes} changes led from incarnation {before.incarnation} to {after.incarnation}")


def _others(document: Document, id_: str) -> list[Entry]:
    return [event for event in document.events if id_of(event).upper() != id_.upper()]


def _same_ids(seen: Seen) -> None:
    seen.events()
    ids = set(map(id_of, seen.document().events))
    for version, document in seen.documents().items():
        if other := set(map(id_of, document.events)) - ids:
            raise Otherwise(f"version {version} has events of other ids: {quoted(other)}")


def _same_id_when_started(seen: Seen) -> None:
    if seen.approval is None:
        raise NotChecked("it takes an event that may be approved: --approve EVENTID")
    first, after = seen.approval.first, seen.approval.after
    if first is None or after is None or not is_scheduled(first):
        raise NotChecked(seen.approval.why_not())
    if after.event(seen.approval.id) is not None:
        return
    known = set(map(id_of, seen.document().events))
    for event in after.events:
        if id_of(event) not in known and _is_alike(event, first):
            raise Otherwise(f"event {id_of(first)} goes on as {id_of(event)}")
    raise NotChecked("the event was gone at once")


def _is_alike(event: Entry, other: Entry) -> bool:
    return all(event.get(key) == other.get(key) for key in ("EventType", "Resources", "Description"))


def _is_guid(value: object) -> bool:
    return isinstance(value, str) and is_guid(value) and value == value.upper()


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) and name for name in value)


def _is_http_date(value: object) -> bool:
    moment = parse_date(value) if isinstance(value, str) else None
    return moment is not None and format_http_date(moment) == value


def _is_duration(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


def _header(name: str, expected: re.Pattern[str] | str, wanted: str) -> Check:
    def check(seen: Seen) -> None:
        value = _document_answer(seen).header(name.lower())
        pattern = expected if isinstance(expected, re.Pattern) else re.compile(re.escape(expected))
        if value is None or not pattern.fullmatch(value):
            raise Otherwise(f"{name} is absent" if value is None else f"{name} is {quoted(value)}, and not {wanted}")

    return check


def _content_length(seen: Seen) -> None:
    answer = _document_answer(seen)
    if answer.header("content-length") != str(len(answer.body)):
        raise Otherwise(f"Content-Length is {answer.header('content-length') or 'absent'}")


def _date(seen: Seen) -> None:
    value = _document_answer(seen).header("date")
    if not _is_http_date(value):
        raise Otherwise(f"Date is {'absent' if value is None else quoted(value)}")


def _request_id(seen: Seen) -> None:
    value = _document_answer(seen).header("x-ms-request-id")
    if value is None or not is_guid(value):
        raise Otherwise(f"x-ms-request-id is {'absent' if value is None else quoted(value)}")


def _document_answer(seen: Seen) -> Answer:
    answer = seen.ask(QUERY)
    if answer.status != 200:
        raise NotChecked(f"there is no document: the answer is {answer}")
    return answer


def _unchanged(if_none_match: Callable[[str], str]) -> Check:
    """Check the answer to a client that has the document already and says so, in its own way."""

    def check(seen: Seen) -> None:
        answer = seen.unchanged(if_none_match)
        if answer.body:
            raise Otherwise(f"the 304 has a body: {quoted(answer.body)}")

    return check


def _changed(seen: Seen) -> None:
    answer = seen.ask_again(conditional('"something-else"'))
    if answer.status != 200:
        raise Otherwise(f"to another ETag the answer is {answer.status}")


def _row(id_: str, rule: str, check: Check, needs: Needs = Needs.NOTHING) -> Row:
    return Row(id=id_, section=SECTION, rule=rule, check=check, needs=needs)


ROWS: Sequence[Row] = (
    _row("compact", "Compact JSON in UTF-8.", _compact),
    _row("document-keys", DOCUMENT_KEYS, _document_keys),
    _row("event-keys", EVENT_KEYS, _event_keys, Needs.EVENT),
    _row("event-keys-older", EVENT_KEYS, _older_keys, Needs.EVENT),
    _row("incarnation", "| `DocumentIncarnation` | goes up by one with every change of the events", _incarnation),
    _row("incarnation-same", INCARNATION, _same_number_same_events),
    _row("incarnation-step", INCARNATION, _up_by_one, Needs.APPROVE),
    _row(
        "event-id",
        "| `EventId` | an upper-case GUID",
        of_events(field("EventId", _is_guid, "an upper-case GUID")),
        Needs.EVENT,
    ),
    _row("event-id-versions", "stays the same through the event's life", _same_ids, Needs.EVENT),
    _row("event-id-started", "stays the same through the event's life", _same_id_when_started, Needs.APPROVE),
    _row(
        "event-status",
        "| `EventStatus` | `Scheduled` or `Started`.",
        of_events(field("EventStatus", one_of("Scheduled", "Started"), "Scheduled or Started")),
        Needs.EVENT,
    ),
    _row(
        "event-type",
        EVENT_TYPE,
        of_events(field("EventType", one_of(*TYPES), f"one of {', '.join(TYPES)}")),
        Needs.EVENT,
    ),
    _row(
        "resource-type",
        "| `ResourceType` | always `VirtualMachine` |",
        of_events(field("ResourceType", one_of("VirtualMachine"), "VirtualMachine")),
        Needs.EVENT,
    ),
    _row(
        "resources",
        "| `Resources` | the affected VMs.",
        of_events(field("Resources", _are_names, "a list of names")),
        Needs.EVENT,
    ),
    _row(
        "not-before",
        NOT_BEFORE,
        of_events(
            field("NotBefore", _is_http_date, "a date like Mon, 19 Sep 2016 18:29:47 GMT"),
            is_scheduled,
            what="Scheduled event",
        ),
        Needs.SCHEDULED,
    ),
    _row(
        "not-before-started",
        NOT_BEFORE,
        of_events(
            field("NotBefore", one_of(""), "empty, as it is once the event has started"),
            is_started,
            what="Started event",
        ),
        Needs.STARTED,
    ),
    _row(
        "description",
        '| `Description` | free text, possibly `""` |',
        of_events(field("Description", lambda value: isinstance(value, str), "a text")),
        Needs.EVENT,
    ),
    _row(
        "event-source",
        "| `EventSource` | `Platform` or `User` |",
        of_events(field("EventSource", one_of("Platform", "User"), "Platform or User")),
        Needs.EVENT,
    ),
    _row(
        "duration",
        "0 means none, -1 not known",
        of_events(field("DurationInSeconds", _is_duration, "a whole number from -1 on")),
        Needs.EVENT,
    ),
    _row(
        "content-type",
        HEADERS,
        _header("Content-Type", "application/json; charset=utf-8", "application/json; charset=utf-8"),
    ),
    _row("content-length", HEADERS, _content_length),
    _row("date", HEADERS, _date),
    _row("server", HEADERS, _header("Server", SERVER, "IMDS/ and four numbers with dots between them")),
    _row("request-id", HEADERS, _request_id),
    _row("etag", HEADERS, _header("ETag", re.compile(".+"), "there")),
    _row("etag-unchanged", UNCHANGED, _unchanged(str)),
    _row("etag-changed", UNCHANGED, _changed),
    _row("etag-list", LISTS, _unchanged(lambda tag: f'"something-else", {tag}')),
    _row("etag-weak", LISTS, _unchanged(lambda tag: f"W/{tag.removeprefix('W/')}")),
    _row("etag-any", LISTS, _unchanged(lambda _: "*")),
)
