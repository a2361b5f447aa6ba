"""The extension that saves polling, all of it Forewarn's own (section “Waiting instead of polling”)."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from selectors import EVENT_READ, DefaultSelector

from forewarn.testing.conformance.document import NotChecked, Otherwise
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import accepted, events, expect_document, expect_status, posted, status
from forewarn.testing.conformance.rows.requests import SERVED
from forewarn.testing.conformance.seen import QUERY, Seen, conditional, etag
from forewarn.testing.conformance.talking import Request
from forewarn.wire.protocol import MAX_WAIT

SECTION = "Waiting instead of polling"

HELD = 4
"""How many queries of one VM are held."""

ENOUGH = 0.9
"""Clocks of two programs do not agree to the last millisecond."""

HEADER = "Answers to a query with status 200 and 304 carry `Forewarn-Wait: 60`."
HOLDS = "is held until the document changes (then 200), or for N seconds (then 304)."


def _offers(seen: Seen) -> str:
    """Return the ETag that a query can wait with, if this endpoint holds queries at all."""
    answer = seen.ask_again(QUERY)
    if answer.header("forewarn-wait") is None:
        raise NotChecked("the answers have no Forewarn-Wait: this endpoint holds no queries")
    return etag(answer)


def _header(seen: Seen) -> None:
    answer = seen.ask(QUERY)
    expect_status(answer, 200)
    if answer.header("forewarn-wait") != str(MAX_WAIT):
        raise Otherwise(f"Forewarn-Wait is {answer.header('forewarn-wait') or 'absent'}")


def _header_of_304(seen: Seen) -> None:
    _offers(seen)
    answer = seen.unchanged(str)
    if answer.header("forewarn-wait") != str(MAX_WAIT):
        raise Otherwise(f"Forewarn-Wait of the 304 is {answer.header('forewarn-wait') or 'absent'}")


def _for_a_second(seen: Seen) -> None:
    for _ in range(3):
        request = _waiting(_offers(seen), 1)
        asked_at = time.monotonic()
        answer = seen.ask_again(request, within=seen.timeout + 1)
        waited = time.monotonic() - asked_at
        if answer.status != 200:
            break
    else:
        raise NotChecked("the document changes all the time")
    expect_status(answer, 304)
    if waited < ENOUGH:
        raise Otherwise(f"the answer came after {waited:.1f} s")


def _at_once(request: Request) -> Check:
    """Check that a query which could be held is not, because it need not."""

    def check(seen: Seen) -> None:
        _offers(seen)
        expect_document(seen, seen.ask_again(request))

    return check


def _one_too_many(seen: Seen) -> None:
    """Ask one more than can be held. Which of them is sent away, the order of their arrival decides."""
    request = _waiting(_offers(seen), MAX_WAIT)
    with ExitStack() as stack, DefaultSelector() as answers:
        for _ in range(HELD + 1):
            line = stack.enter_context(seen.line())
            answers.register(line, EVENT_READ)
            line.send(request)
        answered = answers.select(seen.timeout)
        if not answered:
            raise Otherwise(f"{HELD + 1} queries are all held")
        answer = answered[0][0].fileobj.answer(request)  # type: ignore[union-attr]  # what was registered is a Line
        seen.note(f"{request}, {HELD + 1} at once", answer)
        expect_status(answer, 304)


def _waiting(tag: str, seconds: int) -> Request:
    return conditional(tag, f"{QUERY.target}&wait={seconds}")


def _row(id_: str, rule: str, check: Check, needs: Needs = Needs.WAIT) -> Row:
    return Row(id=id_, section=SECTION, rule=rule, check=check, needs=needs)


ROWS: Sequence[Row] = (
    _row("wait-header", HEADER, _header, Needs.NOTHING),
    _row("wait-header-304", HEADER, _header_of_304),
    _row("wait-holds", HOLDS, _for_a_second),
    _row("wait-ends-with-change", HOLDS, posted("held", status(200)), Needs.APPROVE),
    _row(
        "wait-other-etag",
        "With another ETag the answer comes at once",
        _at_once(_waiting('"something-else"', MAX_WAIT)),
    ),
    _row(
        "wait-without-etag",
        "without `If-None-Match`, `wait` has no effect",
        _at_once(events(f"{SERVED}&wait={MAX_WAIT}")),
    ),
    _row("wait-on-approval", "on an approval it is ignored.", accepted("wait"), Needs.KNOWN),
    _row("wait-too-many", "At most 4 are held for one VM; a fifth gets its 304 at once.", _one_too_many),
)
