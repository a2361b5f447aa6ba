"""Reusable assertions about responses, from which the rules build their checks."""

import json
import re
from collections.abc import Callable, Mapping

from forewarn.testing.conformance.document import (
    CheckSkipped,
    EventFields,
    Mismatch,
    event_id,
    read_document,
    read_json,
)
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe
from forewarn.testing.conformance.raw_http import EVENTS_PATH, METADATA_HEADER, Request, Response, excerpt
from forewarn.testing.conformance.rule import Check

NO_HEADER_BODY = b'{ "error": "Bad request: . Required metadata header not specified" }'
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

ResponseAssertion = Callable[[Response], None]
"""Raises Mismatch if the response is not as it has to be."""


def get_request(target: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Ask for anything."""
    return Request(target=target, headers=(METADATA_HEADER, *headers) if metadata else headers)


def events_request(query: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Ask for the events with this query."""
    return get_request(f"{EVENTS_PATH}{query}", *headers, metadata=metadata)


def with_headers(*headers: tuple[str, str]) -> Request:
    """Ask for the events with these headers alone."""
    return Request(headers=headers)


def expect_status(response: Response, *statuses: int) -> None:
    """Check the status."""
    if response.status not in statuses:
        raise Mismatch(f"the status is {response.status}, not {' or '.join(map(str, statuses))}")


def serves_document(request: Request) -> Check:
    """Check that a query gets the document, as the plain one does."""

    def check(probe: Probe) -> None:
        expect_document(probe, probe.send_once(request))

    return check


def expect_document(probe: Probe, response: Response) -> None:
    """Check that an answer is the document; an empty one will do where the plain query's is empty too."""
    expect_status(response, 200)
    if response.body.strip() or probe.send_once(EVENTS_QUERY).body.strip():
        try:
            read_document(response)
        except CheckSkipped as error:
            raise Mismatch(str(error)) from None


def response_to(request: Request, *assertions: ResponseAssertion) -> Check:
    """Check an answer in some ways."""

    def check(probe: Probe) -> None:
        response = probe.send_once(request)
        for assertion in assertions:
            assertion(response)

    return check


def all_of(*checks: Check) -> Check:
    """Check all of these."""

    def check(probe: Probe) -> None:
        for each in checks:
            each(probe)

    return check


def has_status(*statuses: int) -> ResponseAssertion:
    """Look at the status."""
    return lambda response: expect_status(response, *statuses)


def body_is(expected: bytes) -> ResponseAssertion:
    """Look at the body."""

    def look(response: Response) -> None:
        if response.body != expected:
            raise Mismatch(f"the body is {quoted(response.body)}, not {quoted(expected)}")

    return look


def has_error_body(response: Response) -> None:
    """Look whether the body is an object that says what is wrong."""
    content = read_json(response.body)
    if not isinstance(content, dict) or not isinstance(content.get("error"), str):
        raise Mismatch(f'the body is not {{"error":"…"}} but {quoted(response.body)}')


def is_refused_without_header(response: Response) -> None:
    """Look whether the answer is the one to requests without the header."""
    expect_status(response, 400)
    body_is(NO_HEADER_BODY)(response)


def response_to_approval(name: str, *assertions: ResponseAssertion) -> Check:
    """Check what a request about the event to be approved was answered."""

    def check(probe: Probe) -> None:
        response = approval_response(probe, name)
        for assertion in assertions:
            assertion(response)

    return check


def approval_accepted(name: str) -> Check:
    """Check that a request about the event to be approved was accepted, unless the event was over by then."""

    def check(probe: Probe) -> None:
        response = approval_response(probe, name)
        if response.status != 200 and probe.approval is not None and probe.approval.is_gone:
            raise CheckSkipped("the event ended before it could be tried")
        expect_status(response, 200)

    return check


def approval_response(probe: Probe, name: str) -> Response:
    """Return what a request about the event to be approved was answered."""
    if probe.approval is None:
        raise CheckSkipped("it takes an event that may be approved: --approve EVENTID")
    if name in probe.approval.responses:
        probe.note_exchange(f"POST ({name})", probe.approval.responses[name])
    return probe.approval.response(name)


def each_event(
    find_problem: Callable[[EventFields], str | None],
    condition: Callable[[EventFields], bool] = lambda _: True,
    *,
    what: str = "event",
) -> Check:
    """Check all events that were seen; `find_problem` says what is wrong with one."""

    def check(probe: Probe) -> None:
        for event in probe.events(condition, what=what):
            if problem := find_problem(event):
                raise Mismatch(f"event {excerpt(event_id(event), 60)}: {problem}")

    return check


def field_is(name: str, is_right: Callable[[object], bool], wanted: str) -> Callable[[EventFields], str | None]:
    """Look at one field of an event; `wanted` says in words what is right."""

    def look(event: EventFields) -> str | None:
        if name not in event:
            return f"it has no {name}"
        return None if is_right(event[name]) else f"{name} is {quoted(event[name])}, and not {wanted}"

    return look


def is_one_of(*values: str) -> Callable[[object], bool]:
    """Look whether a value is among these."""
    return lambda value: isinstance(value, str) and value in values


def quoted(value: object) -> str:
    """Write what was seen, short enough to be read: text in quotes, any other value as JSON has it."""
    if not isinstance(value, bytes | str):
        return excerpt(json.dumps(value, ensure_ascii=False, default=list), 120)
    text = excerpt(value, 120)
    return f"“{text}”" if text else "empty"


def json_object(response: Response) -> Mapping[str, object]:
    """Read a JSON object."""
    expect_status(response, 200)
    content = read_json(response.body)
    if not isinstance(content, dict):
        raise Mismatch(f"the body is no JSON object but {quoted(response.body)}")
    return content
