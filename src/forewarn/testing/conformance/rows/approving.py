"""What becomes of an approval (section “Approving”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.course import is_scheduled
from forewarn.testing.conformance.document import NotChecked, Otherwise
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import accepted, every, expect_status, posted, posted_answer, status
from forewarn.testing.conformance.seen import Seen
from forewarn.testing.conformance.talking import Answer

SECTION = "Approving"

ANSWER = "The answer is 200 with an empty body (O)"
EVERY_EVENT = "for every event that the scope has, approved before or not, started or not"
ALL_OR_NOTHING = "All or nothing: where one id is malformed or unknown, the answer is 400 and no event is approved (O)."
OTHER_KEYS = "Other keys, such as `DocumentIncarnation`, are ignored."
NAMES_AND_MARK = (
    "The names `StartRequests` and `EventId` are exact, and a byte order mark before the JSON is passed over (O)."
)
TWICE_AND_EMPTY = "The same id twice is fine, and an empty list changes nothing (O)."


def _is_empty(answer: Answer) -> None:
    if answer.body or answer.header("content-length") != "0":
        raise Otherwise(f"the answer is {answer}, with Content-Length {answer.header('content-length')}")


def _starts(seen: Seen) -> None:
    """An event that does not start may be held by anything: another update domain, an operator, other VMs."""
    if posted_answer(seen, "approve").status >= 400:
        raise NotChecked("the approval was refused")
    if seen.approval is None or seen.approval.untouched is None or seen.approval.after is None:
        raise NotChecked("the document could not be read before and after the approval")
    if not is_scheduled(seen.approval.untouched.event(seen.approval.id)) or seen.approval.is_changed_by_nothing:
        raise NotChecked("the event had started before it was approved as it should be")
    if is_scheduled(seen.approval.after.event(seen.approval.id)):
        raise NotChecked("the event has not started yet; something may hold it")


def _changes_nothing(seen: Seen) -> None:
    if seen.approval is not None and seen.approval.is_changed_by_nothing:
        raise Otherwise(f"event {seen.approval.id} has changed, though no event was named")


def _is_known_when_ended(seen: Seen) -> None:
    answer = posted_answer(seen, "ended")
    if answer.status != 200 and seen.approval is not None and seen.approval.first is None:
        raise NotChecked("the endpoint does not know the event, which may be because it never had it")
    expect_status(answer, 200)


def _row(id_: str, rule: str, check: Check, needs: Needs = Needs.KNOWN) -> Row:
    return Row(id=id_, section=SECTION, rule=rule, check=check, needs=needs)


ROWS: Sequence[Row] = (
    _row("approve", "for every event that the scope has", posted("approve", status(200))),
    _row("approve-body", ANSWER, posted("approve", _is_empty)),
    _row("approve-again", EVERY_EVENT, accepted("again")),
    _row("approve-started", EVERY_EVENT, accepted("started"), Needs.APPROVE),
    _row(
        "approve-ended",
        "and for one that ended within the last 24 hours, on which it has no effect (O).",
        _is_known_when_ended,
        Needs.ENDED,
    ),
    _row("approve-starts", "The event then starts as soon as nothing else holds it.", _starts, Needs.APPROVE),
    _row("approve-id-case", "Ids match in any case.", accepted("other-case")),
    _row("approve-twice", TWICE_AND_EMPTY, accepted("twice")),
    _row("approve-nothing", TWICE_AND_EMPTY, every(accepted("empty-list"), _changes_nothing)),
    _row("approve-incarnation-number", OTHER_KEYS, accepted("incarnation-number")),
    _row("approve-incarnation-text", OTHER_KEYS, accepted("incarnation-text")),
    _row("approve-names", NAMES_AND_MARK, posted("names", status(400)), Needs.APPROVE),
    _row("approve-byte-order-mark", NAMES_AND_MARK, accepted("byte-order-mark")),
    _row(
        "approve-all-or-nothing",
        ALL_OR_NOTHING,
        every(posted("malformed-and-right", status(400)), posted("unknown-and-right", status(400))),
        Needs.APPROVE,
    ),
)
