"""Conformance rules for long polling, Forewarn's own extension (section “Waiting instead of polling”)."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from selectors import EVENT_READ, DefaultSelector

from forewarn.testing.conformance.document import CheckSkipped, Mismatch
from forewarn.testing.conformance.evidence import OUR_CHOICE
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe, conditional, etag
from forewarn.testing.conformance.raw_http import Request
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    approval_accepted,
    events_request,
    expect_document,
    expect_status,
    has_status,
    response_to_approval,
)
from forewarn.testing.conformance.rules.requests import VERSION_QUERY
from forewarn.wire.protocol import MAX_WAIT

SECTION = "Waiting instead of polling"

MAX_HELD = 4
"""How many long polls of one VM are held at a time."""

MIN_WAIT = 0.9
"""Less than the requested second: the clocks of two programs differ by milliseconds."""

HEADER = "Responses to a query with status 200 or 304 have the header `Forewarn-Wait: 60`."
HOLDS_RULE = "is held until the document changes (then 200), or for N seconds (then 304)."


def _long_poll_etag(probe: Probe) -> str:
    """Return the ETag for a long poll; raise CheckSkipped if this endpoint has no long polls."""
    response = probe.send(EVENTS_QUERY)
    if response.header("forewarn-wait") is None:
        raise CheckSkipped("responses have no Forewarn-Wait header: this endpoint has no long polls")
    return etag(response)


def _header(probe: Probe) -> None:
    response = probe.send_once(EVENTS_QUERY)
    expect_status(response, 200)
    if response.header("forewarn-wait") != str(MAX_WAIT):
        raise Mismatch(f"Forewarn-Wait is {response.header('forewarn-wait') or 'absent'}")


def _header_of_304(probe: Probe) -> None:
    _long_poll_etag(probe)
    response = probe.expect_not_modified(str)
    if response.header("forewarn-wait") != str(MAX_WAIT):
        raise Mismatch(f"Forewarn-Wait of the 304 is {response.header('forewarn-wait') or 'absent'}")


def _holds_for_a_second(probe: Probe) -> None:
    for _ in range(3):
        request = _long_poll_request(_long_poll_etag(probe), 1)
        asked_at = time.monotonic()
        response = probe.send(request, within=probe.timeout + 1)
        waited = time.monotonic() - asked_at
        if response.status != 200:
            break
    else:
        raise CheckSkipped("the document changes too often")
    expect_status(response, 304)
    if waited < MIN_WAIT:
        raise Mismatch(f"the response came after {waited:.1f} s")


def _answers_at_once(request: Request) -> Check:
    """Return a check that a long poll with an outdated ETag, or without one, gets its response immediately."""

    def check(probe: Probe) -> None:
        _long_poll_etag(probe)
        expect_document(probe, probe.send(request))

    return check


def _exceeds_held_limit(probe: Probe) -> None:
    """Send one long poll more than can be held; the order of arrival decides which one gets the 304."""
    request = _long_poll_request(_long_poll_etag(probe), MAX_WAIT)
    with ExitStack() as stack, DefaultSelector() as responses:
        for _ in range(MAX_HELD + 1):
            connection = stack.enter_context(probe.connect())
            responses.register(connection, EVENT_READ)
            connection.send(request)
        answered = responses.select(probe.timeout)
        if not answered:
            raise Mismatch(f"{MAX_HELD + 1} queries are all held")
        response = answered[0][0].fileobj.read_response(request)  # type: ignore[union-attr]  # a RawConnection was registered
        probe.note_exchange(f"{request}, {MAX_HELD + 1} at once", response)
        expect_status(response, 304)


def _long_poll_request(tag: str, seconds: int) -> Request:
    return conditional(tag, f"{EVENTS_QUERY.target}&wait={seconds}")


def _rule(id_: str, rule: str, check: Check, needs: Precondition = Precondition.WAIT) -> Rule:
    """Return a rule about the extension, which is our choice as a whole."""
    return Rule(id=id_, section=SECTION, text=rule, evidence=OUR_CHOICE, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    _rule("wait-header", HEADER, _header, Precondition.NOTHING),
    _rule("wait-header-304", HEADER, _header_of_304),
    _rule("wait-holds", HOLDS_RULE, _holds_for_a_second),
    _rule("wait-ends-with-change", HOLDS_RULE, response_to_approval("held", has_status(200)), Precondition.APPROVE),
    _rule(
        "wait-other-etag",
        "With another ETag the response is immediate",
        _answers_at_once(_long_poll_request('"something-else"', MAX_WAIT)),
    ),
    _rule(
        "wait-without-etag",
        "without `If-None-Match`, `wait` has no effect",
        _answers_at_once(events_request(f"{VERSION_QUERY}&wait={MAX_WAIT}")),
    ),
    _rule("wait-on-approval", "on an approval it is ignored.", approval_accepted("wait"), Precondition.APPROVE_ANY),
    _rule("wait-too-many", "At most 4 are held per VM; a fifth gets 304 immediately.", _exceeds_held_limit),
)
