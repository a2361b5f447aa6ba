"""Conformance rules for the fields and headers of the document (section “The document”)."""

import re
from collections.abc import Callable, Sequence

from forewarn.core.event_type import RELEASED_TYPES
from forewarn.core.text import is_guid
from forewarn.testing.conformance.document import CheckSkipped, Document, EventFields, Mismatch, event_id, is_similar
from forewarn.testing.conformance.evidence import (
    CAPTURED_RESPONSES,
    EVENT_LOG,
    EVENT_PROPERTIES,
    OUR_CHOICE,
    Evidence,
    observed,
)
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe, conditional, is_scheduled, is_started
from forewarn.testing.conformance.raw_http import Response
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import each_event, field_is, is_one_of, quoted
from forewarn.testing.conformance.start_watch import starts_not_before
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
TYPES = tuple(type_.value for type_ in RELEASED_TYPES)

STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SERVER = re.compile(r"IMDS/\d+\.\d+\.\d+\.\d+", re.ASCII)

DOCUMENT_KEYS = "The keys of the document are `DocumentIncarnation` and `Events`, in this order, and no others (C)."
EVENT_KEYS = (
    "The keys of an event are `EventId`, `EventStatus`, `EventType`, `ResourceType`, `Resources`, `NotBefore`, "
    "`Description`, `EventSource` and `DurationInSeconds`, in this order, and no others; older [versions](#versions) "
    "omit some (C)."
)
UNCHANGED = (
    "A query that sends the ETag back in `If-None-Match` gets 304 without a body as long as nothing has changed (C)"
)
LISTS = "Lists of ETags, weak ETags and `*` are supported (O)."
SAME_NUMBER = "the same number means the same events (D)."
EVENT_TYPE = (
    "| `EventType` | `Freeze`: paused for a moment. `Reboot`: memory is lost. `Redeploy`: another host, ephemeral "
    "disks are lost. `Preempt`: a low-priority VM is evicted. `Terminate`: the VM will be deleted (D) |"
)
SAME_ID = "stays the same through the event's life (C)"

NINE_KEYS = observed("the log of Azure/vm-scheduled-events, July 2021; a Microsoft client refuses any other keys")


def _is_compact(probe: Probe) -> None:
    body = probe.document().body
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Mismatch(f"the body is not UTF-8: {error}") from None
    if text != text.rstrip():
        raise Mismatch(f"white space after the document: {quoted(body[-20:])}")
    if re.search(r"\s", STRING.sub('""', text)):
        raise Mismatch(f"white space between the values: {quoted(body)}")


def _document_keys(probe: Probe) -> None:
    keys = probe.document().keys
    if keys != ("DocumentIncarnation", "Events"):
        raise Mismatch(f"the keys are {', '.join(keys)}")


def _event_keys(probe: Probe) -> None:
    for event in probe.events():
        if tuple(event) != KEYS:
            raise Mismatch(f"the keys of an event are {', '.join(event)}; {_difference(list(event), KEYS)}")


def _older_keys(probe: Probe) -> None:
    """Check the order of the keys in older versions, and that there are no unknown keys.

    The rules of section “Versions” check which version has which field.
    """
    older = [
        event
        for version, document in probe.documents().items()
        if version < NEWEST_VERSION
        for event in document.events
    ]
    if not older:
        raise CheckSkipped("the document has no event")
    for event in older:
        known = [key for key in KEYS if key in event]
        if list(event) != known:
            raise Mismatch(f"the keys of an event are {', '.join(event)}; {_difference(list(event), known)}")


def _difference(keys: Sequence[str], right: Sequence[str]) -> str:
    """Describe what is wrong with the keys of an event."""
    parts = [f"{word}: {', '.join(some)}" for word, some in _surplus_and_missing(keys, right) if some]
    return "; ".join(parts) or f"the order must be {', '.join(right)}"


def _surplus_and_missing(keys: Sequence[str], right: Sequence[str]) -> tuple[tuple[str, list[str]], ...]:
    too_many = [key for key in keys if key not in right]
    too_few = [key for key in right if key not in keys]
    return ("unknown", too_many), ("missing", too_few)


def _incarnation(probe: Probe) -> None:
    value = probe.document().incarnation
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Mismatch(f"DocumentIncarnation is {quoted(value)}, not a whole number")


def _same_number_same_events(probe: Probe) -> None:
    probe.documents()
    for before, after in probe.document_pairs:
        if (before.incarnation == after.incarnation) != (before.events == after.events):
            raise Mismatch(
                f"incarnations {before.incarnation} and {after.incarnation} have "
                + ("the same events" if before.events == after.events else "different events")
            )


def _incremented_by_one(probe: Probe) -> None:
    if probe.approval is None:
        raise CheckSkipped("the rule needs an event to approve: --approve EVENTID")
    before, after, id_ = probe.approval.before_approval, probe.approval.after_approval, probe.approval.id
    if before is None or after is None or not is_scheduled(before.event(id_)):
        raise CheckSkipped(probe.approval.skip_reason())
    if is_scheduled(after.event(id_)) or _others(before, id_) != _others(after, id_):
        raise CheckSkipped("other events have changed too, or this event has not started")
    changes = 1 if after.event(id_) is not None else 2
    if not isinstance(before.incarnation, int) or not isinstance(after.incarnation, int):
        raise CheckSkipped("the incarnation is not a number")
    if after.incarnation - before.incarnation != changes:
        raise Mismatch(
            f"the incarnation went from {before.incarnation} to {after.incarnation}; number of changes: {changes}"
        )


def _others(document: Document, id_: str) -> list[EventFields]:
    return [event for event in document.events if event_id(event).upper() != id_.upper()]


def _same_ids(probe: Probe) -> None:
    probe.events()
    ids = set(map(event_id, probe.document().events))
    for version, document in probe.documents().items():
        if other := set(map(event_id, document.events)) - ids:
            raise Mismatch(f"version {version} has events with other ids: {quoted(other)}")


def _same_id_when_started(probe: Probe) -> None:
    if probe.approval is None:
        raise CheckSkipped("the rule needs an event to approve: --approve EVENTID")
    first, after = probe.approval.initial, probe.approval.after_approval
    if first is None or after is None or not is_scheduled(first):
        raise CheckSkipped(probe.approval.skip_reason())
    if after.event(probe.approval.id) is not None:
        return
    known = set(map(event_id, probe.document().events))
    for event in after.events:
        if event_id(event) not in known and is_similar(event, first):
            raise Mismatch(f"event {event_id(first)} has another id after its start: {event_id(event)}")
    raise CheckSkipped("the event disappeared immediately")


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
    def check(probe: Probe) -> None:
        value = _document_response(probe).header(name.lower())
        pattern = expected if isinstance(expected, re.Pattern) else re.compile(re.escape(expected))
        if value is None or not pattern.fullmatch(value):
            raise Mismatch(f"{name} is absent" if value is None else f"{name} is {quoted(value)}, not {wanted}")

    return check


def _content_length(probe: Probe) -> None:
    response = _document_response(probe)
    if response.header("content-length") != str(len(response.body)):
        raise Mismatch(f"Content-Length is {response.header('content-length') or 'absent'}")


def _date(probe: Probe) -> None:
    value = _document_response(probe).header("date")
    if not _is_http_date(value):
        raise Mismatch(f"Date is {'absent' if value is None else quoted(value)}")


def _request_id(probe: Probe) -> None:
    value = _document_response(probe).header("x-ms-request-id")
    if value is None or not is_guid(value):
        raise Mismatch(f"x-ms-request-id is {'absent' if value is None else quoted(value)}")


def _document_response(probe: Probe) -> Response:
    response = probe.send_once(EVENTS_QUERY)
    if response.status != 200:
        raise CheckSkipped(f"no document: the response is {response}")
    return response


def _unchanged(if_none_match: Callable[[str], str]) -> Check:
    """Return a check of the response to a client that already has the document; `if_none_match` makes the header."""

    def check(probe: Probe) -> None:
        response = probe.expect_not_modified(if_none_match)
        if response.body:
            raise Mismatch(f"the 304 has a body: {quoted(response.body)}")

    return check


def _changed(probe: Probe) -> None:
    response = probe.send(conditional('"something-else"'))
    if response.status != 200:
        raise Mismatch(f"the response to another ETag is {response.status}")


def _rule(id_: str, rule: str, evidence: Evidence, check: Check, needs: Precondition = Precondition.NOTHING) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    _rule("compact", "Compact JSON in UTF-8 (C).", CAPTURED_RESPONSES, _is_compact),
    _rule("document-keys", DOCUMENT_KEYS, EVENT_LOG, _document_keys),
    _rule("event-keys", EVENT_KEYS, NINE_KEYS, _event_keys, Precondition.EVENT),
    _rule("event-keys-older", EVENT_KEYS, CAPTURED_RESPONSES, _older_keys, Precondition.EVENT),
    _rule(
        "incarnation",
        "| `DocumentIncarnation` | a whole number (D).",
        EVENT_PROPERTIES,
        _incarnation,
    ),
    _rule("incarnation-same", SAME_NUMBER, EVENT_PROPERTIES, _same_number_same_events),
    _rule(
        "incarnation-step",
        "Grows by one with every change of the events (C)",
        EVENT_LOG,
        _incremented_by_one,
        Precondition.APPROVE,
    ),
    _rule(
        "event-id",
        "| `EventId` | an upper-case GUID (C)",
        EVENT_LOG,
        each_event(field_is("EventId", _is_guid, "an upper-case GUID")),
        Precondition.EVENT,
    ),
    _rule("event-id-versions", SAME_ID, CAPTURED_RESPONSES, _same_ids, Precondition.EVENT),
    _rule("event-id-started", SAME_ID, CAPTURED_RESPONSES, _same_id_when_started, Precondition.APPROVE),
    _rule(
        "event-status",
        "| `EventStatus` | `Scheduled` or `Started` (D).",
        EVENT_PROPERTIES,
        each_event(field_is("EventStatus", is_one_of("Scheduled", "Started"), "Scheduled or Started")),
        Precondition.EVENT,
    ),
    _rule(
        "event-type",
        EVENT_TYPE,
        EVENT_PROPERTIES,
        each_event(field_is("EventType", is_one_of(*TYPES), f"one of {', '.join(TYPES)}")),
        Precondition.EVENT,
    ),
    _rule(
        "resource-type",
        "| `ResourceType` | always `VirtualMachine` (D) |",
        EVENT_PROPERTIES,
        each_event(field_is("ResourceType", is_one_of("VirtualMachine"), "VirtualMachine")),
        Precondition.EVENT,
    ),
    _rule(
        "resources",
        "| `Resources` | the names of the affected VMs (D).",
        EVENT_PROPERTIES,
        each_event(field_is("Resources", _are_names, "a list of names")),
        Precondition.EVENT,
    ),
    _rule(
        "not-before",
        "| `NotBefore` | the earliest start, as an HTTP date (C)",
        EVENT_LOG,
        each_event(
            field_is("NotBefore", _is_http_date, "a date like Mon, 19 Sep 2016 18:29:47 GMT"),
            is_scheduled,
            what="Scheduled event",
        ),
        Precondition.SCHEDULED,
    ),
    _rule(
        "not-before-started",
        '`""` once Started (C).',
        CAPTURED_RESPONSES,
        each_event(
            field_is("NotBefore", is_one_of(""), "empty, as it is once the event has started"),
            is_started,
            what="Started event",
        ),
        Precondition.STARTED,
    ),
    _rule(
        "not-before-unapproved",
        "An event starts earlier only if it is approved (D)",
        EVENT_PROPERTIES,
        starts_not_before,
        Precondition.WATCH,
    ),
    _rule(
        "description",
        '| `Description` | free text, possibly `""` (C) |',
        EVENT_LOG,
        each_event(field_is("Description", lambda value: isinstance(value, str), "a text")),
        Precondition.EVENT,
    ),
    _rule(
        "event-source",
        "| `EventSource` | `Platform` or `User` (D) |",
        EVENT_PROPERTIES,
        each_event(field_is("EventSource", is_one_of("Platform", "User"), "Platform or User")),
        Precondition.EVENT,
    ),
    _rule(
        "duration",
        "how long the interruption lasts, in whole seconds; 0 means none, -1 not known (D).",
        EVENT_PROPERTIES,
        each_event(field_is("DurationInSeconds", _is_duration, "a whole number, at least -1")),
        Precondition.EVENT,
    ),
    _rule(
        "content-type",
        "| `Content-Type` | `application/json; charset=utf-8` (C) |",
        CAPTURED_RESPONSES,
        _header("Content-Type", "application/json; charset=utf-8", "application/json; charset=utf-8"),
    ),
    _rule("content-length", "| `Content-Length` | the length of the body (C) |", CAPTURED_RESPONSES, _content_length),
    _rule("date", "| `Date` | the time of the endpoint (C) |", CAPTURED_RESPONSES, _date),
    _rule(
        "server",
        "| `Server` | `IMDS/` and four numbers (C) |",
        CAPTURED_RESPONSES,
        _header("Server", SERVER, "IMDS/ and four numbers separated by dots"),
    ),
    _rule("request-id", "| `x-ms-request-id` | a GUID (O) |", OUR_CHOICE, _request_id),
    _rule(
        "etag",
        "| `ETag` | opaque to clients (C) |",
        CAPTURED_RESPONSES,
        _header("ETag", re.compile(".+"), "an ETag"),
    ),
    _rule("etag-unchanged", UNCHANGED, CAPTURED_RESPONSES, _unchanged(str)),
    _rule("etag-changed", "and 200 if it sends another one (C).", CAPTURED_RESPONSES, _changed),
    _rule("etag-list", LISTS, OUR_CHOICE, _unchanged(lambda tag: f'"something-else", {tag}')),
    _rule("etag-weak", LISTS, OUR_CHOICE, _unchanged(lambda tag: f"W/{tag.removeprefix('W/')}")),
    _rule("etag-any", LISTS, OUR_CHOICE, _unchanged(lambda _: "*")),
)
