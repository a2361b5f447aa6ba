"""Conformance rules for approvals (section “Approving”)."""

from collections.abc import Sequence

from forewarn.testing.conformance.document import CheckSkipped, Mismatch
from forewarn.testing.conformance.evidence import OUR_CHOICE, START_AN_EVENT, Evidence, documented, observed
from forewarn.testing.conformance.probe import Probe, is_scheduled
from forewarn.testing.conformance.raw_http import RequestFailed, Response
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

EVERY_EVENT = "for every event that the scope has, approved before or not, started or not (D)."
ALL_OR_NOTHING = "All or nothing: if one id is malformed or unknown, the response is 400 and no event is approved (O)."
OTHER_KEYS = "Other keys, such as `DocumentIncarnation`, are ignored (D)."
NAMES_AND_MARK = (
    "The names `StartRequests` and `EventId` are case-sensitive, and a byte order mark before the JSON is ignored (O)."
)
TWICE_AND_EMPTY = "The same id twice is allowed, and an empty list changes nothing (O)."

OLD_SAMPLES = documented("events", "the samples of 2017, which send DocumentIncarnation")


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


def _approves_several(probe: Probe) -> None:
    """Check that an approval counts for the event that it names second, unless something else may block its start."""
    if probe.approval is None:
        raise CheckSkipped("the rule needs events to approve: --approve EVENTID, twice")
    shared = probe.approval.shared
    if shared is None:
        raise CheckSkipped(probe.approval.shared_skip_reason or probe.approval.skip_reason())
    probe.note_exchange("POST with two StartRequests", shared.response)
    if isinstance(shared.response, RequestFailed):
        raise RequestFailed(str(shared.response))
    if shared.first_is_unknown and shared.response.status >= 400:
        raise CheckSkipped("the rule needs a second Scheduled event: --approve EVENTID, twice")
    expect_status(shared.response, 200)
    if shared.started_alone:
        raise Mismatch(
            f"event {shared.second_id} did not start after an approval that named it second, "
            "but at once after one that named it first"
        )
    if shared.is_pending:
        raise CheckSkipped(f"event {shared.second_id} has not started yet; something else may block it")


def _empty_list_changes_nothing(probe: Probe) -> None:
    if probe.approval is not None and probe.approval.is_changed_by_empty_list:
        raise Mismatch(f"event {probe.approval.id} has changed, although the approval named no event")


def _is_known_when_ended(probe: Probe) -> None:
    response = approval_response(probe, "ended")
    if response.status != 200 and probe.approval is not None and probe.approval.initial is None:
        raise CheckSkipped("the endpoint does not know the event; it may never have had it")
    expect_status(response, 200)


def _rule(
    id_: str,
    rule: str,
    evidence: Evidence,
    check: Check,
    needs: Precondition = Precondition.APPROVE_ANY,
) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    _rule("approve", EVERY_EVENT, START_AN_EVENT, response_to_approval("approve", has_status(200))),
    _rule("approve-body", "Its body is empty (O).", OUR_CHOICE, response_to_approval("approve", _is_empty)),
    _rule("approve-again", EVERY_EVENT, START_AN_EVENT, approval_accepted("again")),
    _rule("approve-started", EVERY_EVENT, START_AN_EVENT, approval_accepted("started"), Precondition.APPROVE),
    _rule(
        "approve-ended",
        "It is also 200 for an event that ended within the last 24 hours, on which it has no effect (O).",
        OUR_CHOICE,
        _is_known_when_ended,
        Precondition.ENDED,
    ),
    _rule(
        "approve-starts",
        "The event then starts as soon as nothing else blocks it (D).",
        START_AN_EVENT,
        _event_starts,
        Precondition.APPROVE,
    ),
    _rule(
        "approve-several",
        "An approval may name several events, and approves all of them (D).",
        START_AN_EVENT,
        _approves_several,
        Precondition.APPROVE_SEVERAL,
    ),
    _rule("approve-twice", TWICE_AND_EMPTY, OUR_CHOICE, approval_accepted("twice")),
    _rule(
        "approve-nothing",
        TWICE_AND_EMPTY,
        OUR_CHOICE,
        all_of(approval_accepted("empty-list"), _empty_list_changes_nothing),
    ),
    _rule(
        "approve-id-case",
        "Ids are compared without case (C).",
        observed("approvals with ids in lower case"),
        approval_accepted("other-case"),
    ),
    _rule("approve-incarnation-number", OTHER_KEYS, OLD_SAMPLES, approval_accepted("incarnation-number")),
    _rule("approve-incarnation-text", OTHER_KEYS, OLD_SAMPLES, approval_accepted("incarnation-text")),
    _rule(
        "approve-names",
        NAMES_AND_MARK,
        OUR_CHOICE,
        response_to_approval("names", has_status(400)),
        Precondition.APPROVE,
    ),
    _rule("approve-byte-order-mark", NAMES_AND_MARK, OUR_CHOICE, approval_accepted("byte-order-mark")),
    _rule(
        "approve-all-or-nothing",
        ALL_OR_NOTHING,
        OUR_CHOICE,
        all_of(
            response_to_approval("malformed-and-right", has_status(400)),
            response_to_approval("unknown-and-right", has_status(400)),
        ),
        Precondition.APPROVE,
    ),
)
