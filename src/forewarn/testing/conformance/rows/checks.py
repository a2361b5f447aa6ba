"""The checks that many rows share, as functions that make a check."""

import json
import re
from collections.abc import Callable, Mapping

from forewarn.testing.conformance.document import Entry, NotChecked, Otherwise, id_of, read_document, read_json
from forewarn.testing.conformance.row import Check
from forewarn.testing.conformance.seen import QUERY, Seen
from forewarn.testing.conformance.talking import METADATA, SCHEDULED_EVENTS, Answer, Request, excerpt

NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Look = Callable[[Answer], None]
"""Raises Otherwise if the answer is not as it has to be."""


def get(target: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Ask for anything."""
    return Request(target=target, headers=(METADATA, *headers) if metadata else headers)


def events(query: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Ask for the events with this query."""
    return get(f"{SCHEDULED_EVENTS}{query}", *headers, metadata=metadata)


def with_headers(*headers: tuple[str, str]) -> Request:
    """Ask for the events with these headers alone."""
    return Request(headers=headers)


def expect_status(answer: Answer, *statuses: int) -> None:
    """Check the status."""
    if answer.status not in statuses:
        raise Otherwise(f"the status is {answer.status}, not {' or '.join(map(str, statuses))}")


def served(request: Request) -> Check:
    """Check that a query gets the document, as the plain one does."""

    def check(seen: Seen) -> None:
        expect_document(seen, seen.ask(request))

    return check


def expect_document(seen: Seen, answer: Answer) -> None:
    """Check that an answer is the document; an empty one will do where the plain query's is empty too."""
    expect_status(answer, 200)
    if answer.body.strip() or seen.ask(QUERY).body.strip():
        try:
            read_document(answer)
        except NotChecked as error:
            raise Otherwise(str(error)) from None


def answered(request: Request, *looks: Look) -> Check:
    """Check an answer in some ways."""

    def check(seen: Seen) -> None:
        answer = seen.ask(request)
        for look in looks:
            look(answer)

    return check


def every(*checks: Check) -> Check:
    """Check all of these."""

    def check(seen: Seen) -> None:
        for each in checks:
            each(seen)

    return check


def status(*statuses: int) -> Look:
    """Look at the status."""
    return lambda answer: expect_status(answer, *statuses)


def body_is(expected: bytes) -> Look:
    """Look at the body."""

    def look(answer: Answer) -> None:
        if answer.body != expected:
            raise Otherwise(f"the body is {quoted(answer.body)}, not {quoted(expected)}")

    return look


def tells_error(answer: Answer) -> None:
    """Look whether the body is an object that says what is wrong."""
    told = read_json(answer.body)
    if not isinstance(told, dict) or not isinstance(told.get("error"), str):
        raise Otherwise(f'the body is not {{"error":"…"}} but {quoted(answer.body)}')


def is_refused_without_header(answer: Answer) -> None:
    """Look whether the answer is the one to requests without the header."""
    expect_status(answer, 400)
    body_is(NO_HEADER)(answer)


def posted(name: str, *looks: Look) -> Check:
    """Check what a request about the event to be approved was answered."""

    def check(seen: Seen) -> None:
        answer = posted_answer(seen, name)
        for look in looks:
            look(answer)

    return check


def accepted(name: str) -> Check:
    """Check that a request about the event to be approved was accepted, unless the event was over by then."""

    def check(seen: Seen) -> None:
        answer = posted_answer(seen, name)
        if answer.status != 200 and seen.approval is not None and seen.approval.is_gone:
            raise NotChecked("the event ended before it could be tried")
        expect_status(answer, 200)

    return check


def posted_answer(seen: Seen, name: str) -> Answer:
    """Return what a request about the event to be approved was answered."""
    if seen.approval is None:
        raise NotChecked("it takes an event that may be approved: --approve EVENTID")
    if name in seen.approval.answers:
        seen.note(f"POST ({name})", seen.approval.answers[name])
    return seen.approval.answer(name)


def of_events(
    look: Callable[[Entry], str | None], condition: Callable[[Entry], bool] = lambda _: True, *, what: str = "event"
) -> Check:
    """Check all events that were seen; `look` says what is wrong with one."""

    def check(seen: Seen) -> None:
        for event in seen.events(condition, what=what):
            if wrong := look(event):
                raise Otherwise(f"event {excerpt(id_of(event), 60)}: {wrong}")

    return check


def field(name: str, is_right: Callable[[object], bool], wanted: str) -> Callable[[Entry], str | None]:
    """Look at one field of an event; `wanted` says in words what is right."""

    def look(event: Entry) -> str | None:
        if name not in event:
            return f"it has no {name}"
        return None if is_right(event[name]) else f"{name} is {quoted(event[name])}, and not {wanted}"

    return look


def one_of(*values: str) -> Callable[[object], bool]:
    """Look whether a value is among these."""
    return lambda value: isinstance(value, str) and value in values


def quoted(value: object) -> str:
    """Write what was seen, short enough to be read: text in quotes, any other value as JSON has it."""
    if not isinstance(value, bytes | str):
        return excerpt(json.dumps(value, ensure_ascii=False, default=list), 120)
    text = excerpt(value, 120)
    return f"“{text}”" if text else "empty"


def as_object(answer: Answer) -> Mapping[str, object]:
    """Read a JSON object."""
    expect_status(answer, 200)
    told = read_json(answer.body)
    if not isinstance(told, dict):
        raise Otherwise(f"the body is no JSON object but {quoted(answer.body)}")
    return told
