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
"""Raises Mismatch if the response is wrong."""


def get_request(target: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Return a GET request for any target."""
    return Request(target=target, headers=(METADATA_HEADER, *headers) if metadata else headers)


def events_request(query: str, *headers: tuple[str, str], metadata: bool = True) -> Request:
    """Return a GET request for the document with this query string."""
    return get_request(f"{EVENTS_PATH}{query}", *headers, metadata=metadata)


def with_headers(*headers: tuple[str, str]) -> Request:
    """Return a GET request for the document with only these headers."""
    return Request(headers=headers)


def expect_status(response: Response, *statuses: int) -> None:
    """Raise Mismatch unless the response has one of these statuses."""
    if response.status not in statuses:
        raise Mismatch(f"the status is {response.status}, not {' or '.join(map(str, statuses))}")


def serves_document(request: Request) -> Check:
    """Return a check that the response to this request is the document."""

    def check(probe: Probe) -> None:
        expect_document(probe, probe.send_once(request))

    return check


def expect_document(probe: Probe, response: Response) -> None:
    """Raise Mismatch unless the response is the document, or empty like that of the plain query."""
    expect_status(response, 200)
    if response.body.strip() or probe.send_once(EVENTS_QUERY).body.strip():
        try:
            read_document(response)
        except CheckSkipped as error:
            raise Mismatch(str(error)) from None


def response_to(request: Request, *assertions: ResponseAssertion) -> Check:
    """Return a check of the response to this request."""

    def check(probe: Probe) -> None:
        response = probe.send_once(request)
        for assertion in assertions:
            assertion(response)

    return check


def all_of(*checks: Check) -> Check:
    """Return a check that runs all of these checks."""

    def check(probe: Probe) -> None:
        for each in checks:
            each(probe)

    return check


def has_status(*statuses: int) -> ResponseAssertion:
    """Return an assertion about the status."""
    return lambda response: expect_status(response, *statuses)


def body_is(expected: bytes) -> ResponseAssertion:
    """Return an assertion about the body."""

    def look(response: Response) -> None:
        if response.body != expected:
            raise Mismatch(f"the body is {quoted(response.body)}, not {quoted(expected)}")

    return look


def has_error_body(response: Response) -> None:
    """Raise Mismatch unless the body is an object with an error message."""
    content = read_json(response.body)
    if not isinstance(content, dict) or not isinstance(content.get("error"), str):
        raise Mismatch(f'the body is not {{"error":"…"}} but {quoted(response.body)}')


def is_refused(response: Response) -> None:
    """Raise Mismatch unless the request is refused, with any status from 400 to 499."""
    if not 400 <= response.status < 500:
        raise Mismatch(f"the request is not refused: the status is {response.status}")


def response_to_approval(name: str, *assertions: ResponseAssertion) -> Check:
    """Return a check of the response to one of the requests about the event to approve."""

    def check(probe: Probe) -> None:
        response = approval_response(probe, name)
        for assertion in assertions:
            assertion(response)

    return check


def approval_accepted(name: str) -> Check:
    """Return a check that a request about the event to approve was accepted, unless the event had ended by then."""

    def check(probe: Probe) -> None:
        response = approval_response(probe, name)
        if response.status != 200 and probe.approval is not None and probe.approval.is_gone:
            raise CheckSkipped("the event ended before the request")
        expect_status(response, 200)

    return check


def approval_response(probe: Probe, name: str) -> Response:
    """Return the response to one of the requests about the event to approve."""
    if probe.approval is None:
        raise CheckSkipped("the rule needs an event to approve: --approve EVENTID")
    if name in probe.approval.responses:
        request = probe.approval.requests.get(name, f"the request {name}")
        probe.note_exchange(request, probe.approval.responses[name])
    return probe.approval.response(name)


def each_event(
    find_problem: Callable[[EventFields], str | None],
    condition: Callable[[EventFields], bool] = lambda _: True,
    *,
    what: str = "event",
) -> Check:
    """Return a check of all events that were seen; `find_problem` describes what is wrong with one."""

    def check(probe: Probe) -> None:
        for event in probe.events(condition, what=what):
            if problem := find_problem(event):
                raise Mismatch(f"event {excerpt(event_id(event), 60)}: {problem}")

    return check


def field_is(name: str, is_right: Callable[[object], bool], wanted: str) -> Callable[[EventFields], str | None]:
    """Return a function that checks one field of an event; `wanted` describes the right value."""

    def look(event: EventFields) -> str | None:
        if name not in event:
            return f"{name} is absent"
        return None if is_right(event[name]) else f"{name} is {quoted(event[name])}, not {wanted}"

    return look


def is_one_of(*values: str) -> Callable[[object], bool]:
    """Return a predicate: the value is one of these."""
    return lambda value: isinstance(value, str) and value in values


def quoted(value: object) -> str:
    """Return a short form of a value for messages: text in quotes, any other value as JSON."""
    if not isinstance(value, bytes | str):
        return excerpt(json.dumps(value, ensure_ascii=False, default=list), 120)
    text = excerpt(value, 120)
    return f"“{text}”" if text else "empty"


def json_object(response: Response) -> Mapping[str, object]:
    """Return the JSON object in the body of a 200; raise Mismatch otherwise."""
    expect_status(response, 200)
    content = read_json(response.body)
    if not isinstance(content, dict):
        raise Mismatch(f"the body is not a JSON object but {quoted(response.body)}")
    return content
