"""Conformance rules for approvals (section “Approving”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import CheckSkipped, Mismatch
from forewarn.testing.conformance.probe import Probe, is_scheduled
from forewarn.testing.conformance.raw_http import Response
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    all_of,
    approval_accepted,
    approval_response,
    expect_status,
    has_status,
    response_to_approval,
)

SECTION = "Approving"

RESPONSE = "The response is 200 with an empty body (O)"
EVERY_EVENT = "for every event that the scope has, approved before or not, started or not"
ALL_OR_NOTHING = "All or nothing: if one id is malformed or unknown, the response is 400 and no event is approved (O)."
OTHER_KEYS = "Other keys, such as `DocumentIncarnation`, are ignored."
NAMES_AND_MARK = (
    "The names `StartRequests` and `EventId` are case-sensitive, and a byte order mark before the JSON is ignored (O)."
)
TWICE_AND_EMPTY = "The same id twice is allowed, and an empty list changes nothing (O)."


def _is_empty(response: Response) -> None:
    if response.body or response.header("content-length") != "0":
        raise Mismatch(f"the response is {response}, with Content-Length {response.header('content-length')}")


def _event_starts(probe: Probe) -> None:
    """Check that the event starts. If it does not, another update domain, an operator or other VMs may block it."""
    if approval_response(probe, "approve").status >= 400:
        raise CheckSkipped("the approval was refused")
    if probe.approval is None or probe.approval.before_approval is None or probe.approval.after_approval is None:
        raise CheckSkipped("the document could not be read before and after the approval")
    if (
        not is_scheduled(probe.approval.before_approval.event(probe.approval.id))
        or probe.approval.is_changed_by_empty_list
    ):
        raise CheckSkipped("the event had started before the valid approval")
    if is_scheduled(probe.approval.after_approval.event(probe.approval.id)):
        raise CheckSkipped("the event has not started yet; something else may block it")


def _empty_list_changes_nothing(probe: Probe) -> None:
    if probe.approval is not None and probe.approval.is_changed_by_empty_list:
        raise Mismatch(f"event {probe.approval.id} has changed, although the approval named no event")


def _is_known_when_ended(probe: Probe) -> None:
    response = approval_response(probe, "ended")
    if response.status != 200 and probe.approval is not None and probe.approval.initial is None:
        raise CheckSkipped("the endpoint does not know the event; it may never have had it")
    expect_status(response, 200)


def _rule(id_: str, rule: str, check: Check, needs: Precondition = Precondition.APPROVE_ANY) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    _rule("approve", "for every event that the scope has", response_to_approval("approve", has_status(200))),
    _rule("approve-body", RESPONSE, response_to_approval("approve", _is_empty)),
    _rule("approve-again", EVERY_EVENT, approval_accepted("again")),
    _rule("approve-started", EVERY_EVENT, approval_accepted("started"), Precondition.APPROVE),
    _rule(
        "approve-ended",
        "and for one that ended within the last 24 hours, on which it has no effect (O).",
        _is_known_when_ended,
        Precondition.ENDED,
    ),
    _rule(
        "approve-starts",
        "The event then starts as soon as nothing else blocks it.",
        _event_starts,
        Precondition.APPROVE,
    ),
    _rule("approve-id-case", "Ids are compared without case.", approval_accepted("other-case")),
    _rule("approve-twice", TWICE_AND_EMPTY, approval_accepted("twice")),
    _rule("approve-nothing", TWICE_AND_EMPTY, all_of(approval_accepted("empty-list"), _empty_list_changes_nothing)),
    _rule("approve-incarnation-number", OTHER_KEYS, approval_accepted("incarnation-number")),
    _rule("approve-incarnation-text", OTHER_KEYS, approval_accepted("incarnation-text")),
    _rule("approve-names", NAMES_AND_MARK, response_to_approval("names", has_status(400)), Precondition.APPROVE),
    _rule("approve-byte-order-mark", NAMES_AND_MARK, approval_accepted("byte-order-mark")),
    _rule(
        "approve-all-or-nothing",
        ALL_OR_NOTHING,
        all_of(
            response_to_approval("malformed-and-right", has_status(400)),
            response_to_approval("unknown-and-right", has_status(400)),
        ),
        Precondition.APPROVE,
    ),
)
