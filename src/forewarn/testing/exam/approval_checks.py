"""Checks of a handler's approvals: its own events, while they are Scheduled, and not too often."""

from typing import ClassVar

import msgspec

from forewarn.client.document import Event, Status
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.testing.exam.checks import (
    CheckResult,
    Polarity,
    Verdict,
    broken,
    count_text,
    describe_exit,
    is_late,
    kept,
    not_judged,
    warning,
)
from forewarn.testing.exam.expectations import Expectation, Expectations
from forewarn.testing.exam.trace import ENOUGH_LOOKS, EventKind, HandlerTrace, ObservedApproval, named

MAX_APPROVALS = 3
"""A handler may repeat an approval, for example if the response was lost; more often than this is a bug."""


class ApprovalCheck(msgspec.Struct, frozen=True):
    """The handler approves an event of its own VM while the event is Scheduled.

    An event that also names other VMs is judged only if the handler has approved the event `like`.
    """

    event: str
    like: str | None = None

    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """The name of the check."""
        return f"approves-{self.event}"

    @property
    def description(self) -> str:
        """What the handler must do."""
        if self.like is not None:
            return f"approve {self.event} while it is Scheduled, as it has approved {self.like}"
        return f"approve {self.event} while it is Scheduled"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Evaluate the approvals of the event by the user's expectation for its type and source."""
        id_ = trace.labels.get(self.event)
        kind = None if id_ is None else trace.kind(id_)
        if id_ is None or kind is None:
            return not_judged(f"it never received {self.event} as Scheduled")
        event = trace.last_scheduled_event(id_)
        if event is None or trace.first_document_with(id_, status=Status.SCHEDULED) is None:
            return self._evaluate_unseen(trace, kind, expectations)
        match self._expectation(event, kind, trace, expectations):
            case Expectation.EITHER:
                return not_judged(self._describe_either(trace, id_, event), is_exercised=True)
            case Expectation.IGNORE:
                return msgspec.structs.replace(self._evaluate_ignore(trace, id_), event_kind=kind.text)
            case Expectation.APPROVE:
                result = self._evaluate_approve(trace, id_, event, kind)
                return msgspec.structs.replace(result, event_kind=kind.text)

    def _evaluate_unseen(self, trace: HandlerTrace, kind: EventKind, expectations: Expectations) -> CheckResult:
        """Evaluate an event that the handler never received: its api-version may not have the type."""
        since = EVENT_TYPES[EventType(kind.type)].since
        if not trace.versions or max(trace.versions) >= since:
            return not_judged(f"it never received {self.event} as Scheduled")
        seen = f"it asks with {max(trace.versions)}, in which {kind.type} events are not shown"
        match expectations.for_kind(kind):
            case Expectation.APPROVE:
                why = f"{seen}; use {since} or newer"
                return CheckResult(Verdict.BROKEN, why, event_kind=kind.text, is_conclusive=True)
            case Expectation.IGNORE:
                return CheckResult(Verdict.KEPT, seen, Polarity.MUST_NOT, event_kind=kind.text)
            case Expectation.EITHER:
                return not_judged(seen, is_exercised=True)

    def _expectation(
        self, event: Event, kind: EventKind, trace: HandlerTrace, expectations: Expectations
    ) -> Expectation:
        before = None if self.like is None else trace.labels.get(self.like)
        has_before = before is not None and any(approval.is_accepted for approval in trace.approvals_of(before))
        return expectations.for_event(kind, is_shared=len(event.resources) > 1 and not has_before)

    def _describe_either(self, trace: HandlerTrace, id_: str, event: Event) -> str:
        reason = (
            f"{self.event} also names other VMs (see --expect shared)"
            if len(event.resources) > 1
            else "either is expected"
        )
        return f"{reason}; it {'approved' if trace.approvals_of(id_) else 'did not approve'} {self.event}"

    def _evaluate_ignore(self, trace: HandlerTrace, id_: str) -> CheckResult:
        sent = trace.approvals_of(id_)
        if sent:
            return CheckResult(
                Verdict.BROKEN, f"it approved {self.event} {trace.time_text(sent[0].at)}", Polarity.MUST_NOT
            )
        return CheckResult(Verdict.KEPT, f"it received {self.event} and did not approve it", Polarity.MUST_NOT)

    def _evaluate_approve(self, trace: HandlerTrace, id_: str, event: Event, kind: EventKind) -> CheckResult:
        sent = trace.approvals_of(id_)
        started = trace.first_document_with(id_, status=Status.STARTED)
        in_time = [one for one in sent if started is None or not is_late(trace, started.at, one.at)]
        if any(one.is_accepted for one in in_time):
            when = next(one for one in in_time if one.is_accepted)
            return kept(f"POST {trace.time_text(when.at)}, response 200")
        if in_time:
            return not_judged(f"it tried {trace.time_text(in_time[0].at)} and got the response {in_time[0].status}")
        if trace.exit_status is not None:
            return not_judged(f"{describe_exit(trace)} before it could approve")
        if not (trace.is_finished or started is not None or trace.gone_at(id_) is not None):
            return not_judged("the scenario's time limit was reached before it could approve")
        if (looks := trace.looks(id_)) < ENOUGH_LOOKS:
            return not_judged(f"it polled only {count_text(looks)} while {self.event} was Scheduled")
        document = trace.first_document_with(id_)
        seen_at = document.at if document is not None else 0.0
        after = sum(1 for poll in trace.polls if document is not None and poll.at > seen_at)
        others = ", ".join(sorted({trace.label(one.id) for one in trace.approvals} - {self.event})) or "nothing"
        seen = (
            f"it received {self.event} ({event.type}, {event.status}) {trace.time_text(seen_at)}, "
            f"polled {count_text(after)} after that, and approved {others}{trace.position_text(id_)}"
        )
        advice = f"if that is intended: --expect {kind.text}=ignore"
        return msgspec.structs.replace(broken(seen), advice=advice)


class OtherVmApprovalCheck(msgspec.Struct, frozen=True):
    """The handler does not approve events that name only other VMs: an approval starts their impact."""

    key: ClassVar[str] = "approves-others"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "approve an event that names only other VMs"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Look for approvals of received events that do not name the VM."""
        others = {
            id_ for document in trace.documents for id_, event in document.events.items() if not event.affects(trace.vm)
        }
        if not others:
            return not_judged("it received no such event")
        wrong = [approval for approval in trace.approvals if approval.id in others]
        if expectations.for_others:
            seen = f"it may act for other VMs; it approved {len(wrong)} of their events"
            return not_judged(seen, is_exercised=True)
        if not wrong:
            return kept(f"it received {len(others)} of them and approved none")
        event = trace.event(wrong[0].id)
        names = "" if event is None else named(event)
        return broken(f"it approved {trace.label(wrong[0].id)} of {names} {trace.time_text(wrong[0].at)}")


class StartedApprovalCheck(msgspec.Struct, frozen=True):
    """The handler does not approve an event that has started: it needs no approval, but Azure answers 200."""

    key: ClassVar[str] = "approves-started"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "approve an event after receiving it as Started"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for approvals of Started events.

        TOLERANCE applies to an event that was Scheduled before: its approval may cross the document with the start.
        """
        started = {id_ for document in trace.documents for id_, event in document.events.items() if event.is_started}
        if not started:
            return not_judged("it received no Started event")
        wrong = [approval for approval in trace.approvals if _was_started(trace, approval)]
        if not wrong:
            return kept(f"it received {len(started)} Started events and approved none of them afterwards")
        return warning(f"it approved {trace.label(wrong[0].id)} {trace.time_text(wrong[0].at)}, when it was Started")


def _was_started(trace: HandlerTrace, approval: ObservedApproval) -> bool:
    was_scheduled = trace.first_document_with(approval.id, status=Status.SCHEDULED) is not None
    started = trace.first_document_with(approval.id, status=Status.STARTED)
    if started is None or started.at > approval.at:
        return False
    return not was_scheduled or is_late(trace, started.at, approval.at)


class EndedApprovalCheck(msgspec.Struct, frozen=True):
    """The handler does not approve an event that has ended or was canceled; Azure answers 200 for a day."""

    key: ClassVar[str] = "approves-gone"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "approve an event that is no longer in the document"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for approvals of events that had already disappeared from the handler's documents."""
        known = {id_ for document in trace.documents for id_ in document.events}
        if not any(trace.gone_at(id_) is not None for id_ in known):
            return not_judged("no event disappeared from its documents")
        wrong = [approval for approval in trace.approvals if _was_gone(trace, approval)]
        if not wrong:
            return kept("it approved no such event")
        gone_at = trace.gone_at(wrong[0].id) or 0.0
        return warning(
            f"it approved {trace.label(wrong[0].id)} {trace.time_text(wrong[0].at)}, "
            f"which had disappeared at {gone_at - trace.began_at:.1f} s"
        )


def _was_gone(trace: HandlerTrace, approval: ObservedApproval) -> bool:
    gone_at = trace.gone_at(approval.id)
    return gone_at is not None and is_late(trace, gone_at, approval.at)


class RepeatedApprovalCheck(msgspec.Struct, frozen=True):
    """The handler does not approve the same event more than MAX_APPROVALS times; Azure answers 200 each time."""

    key: ClassVar[str] = "approves-again"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = f"approve an event more than {MAX_APPROVALS} times: once is enough"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Count the accepted approvals of each event."""
        counts: dict[str, int] = {}
        for approval in trace.approvals:
            if approval.is_accepted:
                counts[approval.id] = counts.get(approval.id, 0) + 1
        if not counts:
            return not_judged("it approved nothing")
        id_ = max(counts, key=counts.__getitem__)
        seen = f"it approved {trace.label(id_)} {count_text(counts[id_])}"
        return warning(seen) if counts[id_] > MAX_APPROVALS else kept(seen)
