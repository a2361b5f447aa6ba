"""Checks of a handler's behaviour, each a value that evaluates a trace.

A check without an occasion, or whose subject cannot be observed, is "not judged"; it never counts as kept."""

from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import ClassVar, Protocol

import msgspec

from forewarn.client.document import Event, Status
from forewarn.guest.observer import Observed
from forewarn.testing.exam.expectations import Expectation, Expectations
from forewarn.testing.exam.trace import ApprovalRequest, HandlerTrace

TOLERANCE = 0.5
"""How many seconds old news must be before a program can be blamed for not having acted on it: machines are busy."""

MAX_POLL_INTERVAL = 5.0
"""After how many seconds a handler asks again, at the latest. Once a second is advised."""

MAX_SILENCE = 7.5
"""After how many seconds of silence at the end it is clear that nothing more comes."""

MIN_POLL_INTERVAL = 0.2
"""A real endpoint refuses more than five requests in a second."""

MIN_INTERVALS = 10
"""Of fewer gaps nobody can say that they are too short."""

MAX_APPROVALS = 3
"""An approval may be repeated, if its answer was lost say; more than this is a handler that does not remember."""

INVALID_REQUEST_STATUSES = frozenset({400, 405, 413, 431})
VERSION_NOT_FOUND = 404


class Polarity(StrEnum):
    """Whether it has to be so, or must not be so."""

    MUST = "must"
    MUST_NOT = "must not"


class Verdict(StrEnum):
    """What became of a demand."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_JUDGED = "not judged"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A demand and what became of it. `expected` is the demand in words, `seen` what was seen on the wire."""

    demand: str
    mood: Polarity
    expected: str
    verdict: Verdict
    seen: str


class CheckResult(msgspec.Struct, frozen=True):
    """A verdict, and why."""

    verdict: Verdict
    seen: str
    polarity: Polarity | None = None
    """Where the user's wishes have turned the demand round."""


class Check(Protocol):
    """One line of a scenario's table."""

    @property
    def key(self) -> str:
        """Its name, which no other line of the table has."""
        ...

    @property
    def polarity(self) -> Polarity:
        """Must, or must not."""
        ...

    @property
    def description(self) -> str:
        """What the handler must, or must not, do."""
        ...

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Judge what was seen."""
        ...


def evaluate(check: Check, trace: HandlerTrace, expectations: Expectations) -> Finding:
    """Judge one demand. Where it has asked more than anybody can remember, that is all that can be said of it."""
    if trace.dropped and not isinstance(check, RateLimitCheck):
        result = _not_judged(f"it has made so many requests that {trace.dropped} of them were not remembered")
    else:
        result = check.evaluate(trace, expectations)
    polarity = result.polarity or check.polarity
    return Finding(
        demand=check.key,
        mood=polarity,
        expected=f"{polarity} {check.description}",
        verdict=result.verdict,
        seen=result.seen,
    )


def _kept(seen: str) -> CheckResult:
    return CheckResult(Verdict.KEPT, seen)


def _broken(seen: str) -> CheckResult:
    return CheckResult(Verdict.BROKEN, seen)


def _not_judged(why: str) -> CheckResult:
    return CheckResult(Verdict.NOT_JUDGED, why)


# How it asks.


class PollCheck(msgspec.Struct, frozen=True):
    """The program asks for its events at all."""

    key: ClassVar[str] = "asks"
    polarity: ClassVar[Polarity] = Polarity.MUST
    description: ClassVar[str] = "ask for its events: GET /metadata/scheduledevents"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for the first question."""
        if trace.polls:
            first = trace.polls[0]
            return _kept(f"{first.method} {first.target} {trace.time_text(first.at)}")
        if trace.is_timed_out and trace.exit_status is None:
            return _not_judged("the time was over before it could")
        others = ", ".join(sorted({f"{request.method} {request.target}" for request in trace.requests}))
        no_request = f"no such request within {trace.finished_at - trace.began_at:.0f} s"
        problem = f"{_describe_exit(trace)} without such a request" if trace.exit_status is not None else no_request
        return _broken(f"{problem}, but {others}" if others else problem)


class ValidRequestCheck(msgspec.Struct, frozen=True):
    """No request is refused because it is wrong."""

    key: ClassVar[str] = "asks-rightly"
    polarity: ClassVar[Polarity] = Polarity.MUST
    description: ClassVar[str] = "make only requests that the endpoint understands, each with `Metadata: true`"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for refusals. A version that is not supported is none if the program finds another."""
        if not trace.event_requests:
            return _not_judged("it has not asked")
        fine_at = max((told.at for told in trace.documents), default=0.0)
        wrong = [request for request in trace.event_requests if _is_invalid(request, fine_at)]
        if not wrong:
            return _kept(f"{len(trace.event_requests)} requests, none refused for its form")
        first = wrong[0]
        answer = first.answer.decode(errors="replace").strip()
        more = f"; {len(wrong)} such in all" if len(wrong) > 1 else ""
        return _broken(
            f"{first.method} {first.target} {trace.time_text(first.at)} was answered {first.status}: {answer}{more}"
        )


def _is_invalid(request: Observed, fine_at: float) -> bool:
    return request.status in INVALID_REQUEST_STATUSES or (request.status == VERSION_NOT_FOUND and request.at > fine_at)


class PollIntervalCheck(msgspec.Struct, frozen=True):
    """The gaps between two questions are short, and there is none without an end."""

    key: ClassVar[str] = "asks-often"
    polarity: ClassVar[Polarity] = Polarity.MUST
    description: ClassVar[str] = f"ask again within {MAX_POLL_INTERVAL:g} s, on the median of all gaps, and never stop"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Measure from each right answer to the next question, and from the last answer to the end."""
        if not trace.polls:
            return _not_judged("it has not asked")
        gaps = _poll_intervals(trace)
        silence = _final_silence(trace)
        if silence > MAX_SILENCE:
            return _broken(f"it asked {_count_text(len(trace.polls))}, and nothing more for the last {silence:.1f} s")
        if not gaps:
            return _not_judged("it asked once, and there was no time for more")
        middle = median(gaps)
        seen = f"{len(trace.polls)} questions, {middle:.1f} s between two (longest {max(gaps):.1f} s)"
        return _kept(seen) if middle <= MAX_POLL_INTERVAL else _broken(seen)


def _poll_intervals(trace: HandlerTrace) -> list[float]:
    """Return the seconds between an answer and the next question; what follows a wrong answer is another's choice."""
    return [
        max(0.0, later.at - earlier.answered_at)
        for earlier, later in pairwise(trace.polls)
        if earlier.answered_at is not None and earlier.status in (200, 304)
    ]


def _final_silence(trace: HandlerTrace) -> float:
    """Return for how long it was silent in the end, while it could have asked."""
    last = trace.requests[-1]
    if last.status is None or trace.exit_status is not None or trace.vm_removed_at is not None:
        return 0.0
    return trace.finished_at - (last.answered_at or last.at)


class RateLimitCheck(msgspec.Struct, frozen=True):
    """The endpoint is not asked without a pause."""

    key: ClassVar[str] = "hammers"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "ask more than 5 times in a second: a real endpoint then answers 429"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Take the median gap, so that a machine that stutters does not count. Held questions have no pace."""
        asked = [question.at for question in trace.polls if "wait=" not in question.target.lower()]
        gaps = [later - earlier for earlier, later in pairwise(asked)]
        if not trace.polls:
            return _not_judged("it has not asked")
        if len(gaps) < MIN_INTERVALS:
            return _kept(f"{len(trace.polls)} questions in all")
        middle = median(gaps)
        seen = f"{len(asked)} questions, the next one after {middle:.2f} s on the median"
        return _broken(seen) if middle < MIN_POLL_INTERVAL else _kept(seen)


class RunningCheck(msgspec.Struct, frozen=True):
    """Whatever happens, the program does not end; after one event comes the next."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    description: ClassVar[str] = "go on running, through all of it and afterwards"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether it has ended by itself."""
        if trace.exit_status is not None:
            return _broken(f"{_describe_exit(trace)}{_last_output(trace)}")
        return _kept("it was still running in the end")


class ExitCheck(msgspec.Struct, frozen=True):
    """The VM is taken away: a program may end then, or once it has approved, but not before."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    description: ClassVar[str] = "go on running until it has approved, or the event has started"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether it has ended too early."""
        if trace.exit_status is None:
            return _kept("it was still running in the end")
        has_reason = any(approval.is_accepted for approval in trace.approvals) or any(
            event.is_started for told in trace.documents for event in told.events.values()
        )
        is_gone = trace.vm_removed_at is not None and trace.vm_removed_at <= trace.exit_status.at
        if has_reason or is_gone:
            return _kept(f"{_describe_exit(trace)}, when there was nothing more to do")
        return _broken(f"{_describe_exit(trace)}{_last_output(trace)}")


class ProxyCheck(msgspec.Struct, frozen=True):
    """The endpoint is link-local: no proxy can reach it for the VM."""

    key: ClassVar[str] = "uses-proxy"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "send its requests to the proxy that the environment names"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """A client that talks to a proxy sends the whole URL."""
        if not trace.requests:
            return _not_judged("it has not asked")
        sent = [request for request in trace.requests if "://" in request.target.partition("?")[0]]
        if sent:
            return _broken(f"{sent[0].method} {sent[0].target} {trace.time_text(sent[0].at)} came to the proxy")
        return _kept(f"{len(trace.requests)} requests, all straight to the endpoint")


# What it approves.


class ApprovalCheck(msgspec.Struct, frozen=True):
    """An event of its own VM is approved while it waits for that.

    `like`: an event that names other VMs too is judged if the program has approved that one.
    """

    event: str
    like: str | None = None

    polarity: ClassVar[Polarity] = Polarity.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"approves-{self.event}"

    @property
    def description(self) -> str:
        """What it is."""
        if self.like is not None:
            return f"approve {self.event} while it is Scheduled, as it has approved {self.like}"
        return f"approve {self.event} while it is Scheduled"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Judge by what is wanted for events of this kind."""
        id_ = trace.labels.get(self.event)
        first = None if id_ is None else trace.first_document_with(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return _not_judged(f"it was never told of {self.event} as Scheduled")
        event = trace.last_scheduled_event(id_) or first.events[id_]
        expectation = self._expectation(event, trace, expectations)
        match expectation:
            case Expectation.EITHER:
                return _not_judged(f"{self.event} names {', '.join(event.resources)}{_describe_approval(trace, id_)}")
            case Expectation.IGNORE:
                return self._evaluate_ignore(trace, id_)
            case Expectation.APPROVE:
                return self._evaluate_approve(trace, id_, event)

    def _expectation(self, event: Event, trace: HandlerTrace, expectations: Expectations) -> Expectation:
        expectation = expectations.for_event(event)
        if len(event.resources) == 1 or expectation is not Expectation.APPROVE:
            return expectation
        before = None if self.like is None else trace.labels.get(self.like)
        has_before = before is not None and any(approval.is_accepted for approval in trace.approvals_of(before))
        return Expectation.APPROVE if has_before else expectations.shared

    def _evaluate_ignore(self, trace: HandlerTrace, id_: str) -> CheckResult:
        sent = trace.approvals_of(id_)
        if sent:
            return CheckResult(
                Verdict.BROKEN, f"it approved {self.event} {trace.time_text(sent[0].at)}", Polarity.MUST_NOT
            )
        return CheckResult(Verdict.KEPT, f"it was told of {self.event} and did not approve it", Polarity.MUST_NOT)

    def _evaluate_approve(self, trace: HandlerTrace, id_: str, event: Event) -> CheckResult:
        sent = trace.approvals_of(id_)
        started = trace.first_document_with(id_, status=Status.STARTED)
        in_time = [one for one in sent if started is None or one.at <= started.at + TOLERANCE]
        if any(one.is_accepted for one in in_time):
            when = next(one for one in in_time if one.is_accepted)
            return _kept(f"POST {trace.time_text(when.at)}, answered 200")
        if in_time:
            return _not_judged(f"it tried {trace.time_text(in_time[0].at)} and was answered {in_time[0].status}")
        if trace.exit_status is not None:
            return _not_judged(f"{_describe_exit(trace)} before it could")
        if not (trace.is_finished or started is not None or trace.gone_at(id_) is not None):
            return _not_judged("the time was over before it could")
        told = trace.first_document_with(id_)
        after = sum(1 for question in trace.polls if told is not None and question.at > told.at)
        others = ", ".join(sorted({trace.label(one.id) for one in trace.approvals} - {self.event})) or "nothing"
        return _broken(
            f"it was told of {self.event} ({event.type}, {event.status}) {trace.time_text(told.at if told else 0.0)}, "
            f"asked {_count_text(after)} after that, and approved {others}"
        )


class OtherVmApprovalCheck(msgspec.Struct, frozen=True):
    """Events that name only other VMs are theirs to approve: with an approval their impact begins."""

    key: ClassVar[str] = "approves-others"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "approve an event that names only other VMs"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Look at every approval of an event that was told and is not the VM's own."""
        others = {id_ for told in trace.documents for id_, event in told.events.items() if not event.affects(trace.vm)}
        if not others:
            return _not_judged("it was told of no such event")
        wrong = [approval for approval in trace.approvals if approval.id in others]
        if expectations.for_others:
            return _not_judged(f"it may act for others; it approved {len(wrong)} of their events")
        if not wrong:
            return _kept(f"it was told of {len(others)} such and approved none")
        event = trace.event(wrong[0].id)
        named = ", ".join(event.resources) if event is not None else ""
        return _broken(f"it approved {trace.label(wrong[0].id)}, of {named}, {trace.time_text(wrong[0].at)}")


class StartedApprovalCheck(msgspec.Struct, frozen=True):
    """What has started waits for nobody: there is nothing to approve."""

    key: ClassVar[str] = "approves-started"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "approve an event that it was told has started"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """News that came a moment ago may have crossed the approval; an event that was never Scheduled may not."""
        started = {id_ for told in trace.documents for id_, event in told.events.items() if event.is_started}
        if not started:
            return _not_judged("it was told of no event that has started")
        wrong = [approval for approval in trace.approvals if _was_started(trace, approval)]
        if not wrong:
            return _kept(f"it was told of {len(started)} such and approved none of them then")
        return _broken(f"it approved {trace.label(wrong[0].id)} {trace.time_text(wrong[0].at)}, which was Started")


def _was_started(trace: HandlerTrace, approval: ApprovalRequest) -> bool:
    was_scheduled = trace.first_document_with(approval.id, status=Status.SCHEDULED) is not None
    told = trace.latest_document(approval.at - (TOLERANCE if was_scheduled else 0.0))
    event = None if told is None else told.events.get(approval.id)
    return event is not None and event.is_started


class EndedApprovalCheck(msgspec.Struct, frozen=True):
    """What is over, or was called off, is not approved any more."""

    key: ClassVar[str] = "approves-gone"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "approve an event that is in the document no more"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for approvals of events that had been told before, and were not in documents since."""
        known = {id_ for told in trace.documents for id_ in told.events}
        if not any(trace.gone_at(id_) is not None for id_ in known):
            return _not_judged("it was told of no event that is over")
        wrong = [approval for approval in trace.approvals if _was_gone(trace, approval)]
        if not wrong:
            return _kept("it approved none")
        gone_at = trace.gone_at(wrong[0].id) or 0.0
        return _broken(
            f"it approved {trace.label(wrong[0].id)} {trace.time_text(wrong[0].at)}, "
            f"which had been gone since {gone_at - trace.began_at:.1f} s"
        )


def _was_gone(trace: HandlerTrace, approval: ApprovalRequest) -> bool:
    gone_at = trace.gone_at(approval.id)
    return gone_at is not None and gone_at + TOLERANCE < approval.at


class RepeatedApprovalCheck(msgspec.Struct, frozen=True):
    """An approval counts once; it may be repeated, but not for ever."""

    key: ClassVar[str] = "approves-again"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = f"approve an event more than {MAX_APPROVALS} times: once is enough"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Count the approvals that were taken."""
        counts: dict[str, int] = {}
        for approval in trace.approvals:
            if approval.is_accepted:
                counts[approval.id] = counts.get(approval.id, 0) + 1
        if not counts:
            return _not_judged("it approved nothing")
        id_ = max(counts, key=counts.__getitem__)
        seen = f"it approved {trace.label(id_)} {_count_text(counts[id_])}"
        return _broken(seen) if counts[id_] > MAX_APPROVALS else _kept(seen)


# What the user's markers tell.


class PrepareCheck(msgspec.Struct, frozen=True):
    """The VM is prepared before the event is approved."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"prepares-{self.event}"

    @property
    def description(self) -> str:
        """What it is."""
        return f"have prepared for {self.event} before it approves it"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Compare the moment at which the marker changed with that of the approval."""
        if trace.prepared is None:
            return _not_judged("no marker was named: --prepared FILE")
        id_ = trace.labels.get(self.event)
        first = None if id_ is None else trace.first_document_with(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return _not_judged(f"it was never told of {self.event} as Scheduled")
        if expectations.for_event(first.events[id_]) is Expectation.IGNORE:
            return _not_judged("events of this type are to be ignored")
        approved_at = min((one.at for one in trace.approvals_of(id_)), default=None)
        done = [at for at in trace.prepared if at >= first.at - TOLERANCE]
        if not done:
            ran_out = trace.exit_status is not None or not (trace.is_finished or approved_at is not None)
            return _not_judged("it had no time to") if ran_out else _broken("the marker has not changed")
        if approved_at is not None and done[0] > approved_at:
            return _broken(
                f"it approved {trace.time_text(approved_at)}, and the marker changed {trace.time_text(done[0])}"
            )
        return _kept(f"the marker changed {trace.time_text(done[0])}")


class OtherVmPrepareCheck(msgspec.Struct, frozen=True):
    """What happens to other VMs is no reason to prepare."""

    key: ClassVar[str] = "prepares-for-others"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    description: ClassVar[str] = "prepare for an event that names only other VMs"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether the marker has changed."""
        if trace.prepared is None:
            return _not_judged("no marker was named: --prepared FILE")
        if trace.prepared:
            return _broken(f"the marker changed {trace.time_text(trace.prepared[0])}")
        return _kept("the marker has not changed")


class RecoverCheck(msgspec.Struct, frozen=True):
    """When the event is over, or was called off, the VM goes back to work."""

    event: str

    polarity: ClassVar[Polarity] = Polarity.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"recovers-{self.event}"

    @property
    def description(self) -> str:
        """What it is."""
        return f"recover when {self.event} is over"

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """See whether the marker has changed since the event was gone."""
        if trace.recovered is None:
            return _not_judged("no marker was named: --recovered FILE")
        id_ = trace.labels.get(self.event)
        gone_at = None if id_ is None else trace.gone_at(id_)
        event = None if id_ is None else trace.event(id_)
        if gone_at is None or event is None:
            return _not_judged(f"it was never told that {self.event} is over")
        if expectations.for_event(event) is Expectation.IGNORE:
            return _not_judged("events of this type are to be ignored")
        if not (trace.prepared or trace.approvals_of(event.id.upper())):
            return _not_judged("it had neither prepared nor approved: there is nothing to recover from")
        done = [at for at in trace.recovered if at >= gone_at - TOLERANCE]
        if done:
            return _kept(f"the marker changed {trace.time_text(done[0])}")
        if trace.exit_status is not None or not trace.is_finished:
            return _not_judged("it had no time to")
        return _broken(f"{self.event} was gone {trace.time_text(gone_at)}, and the marker has not changed since")


def _describe_exit(trace: HandlerTrace) -> str:
    ended = trace.exit_status
    return "it ended" if ended is None else f"it ended with exit code {ended.code} {trace.time_text(ended.at)}"


def _last_output(trace: HandlerTrace) -> str:
    lines = trace.output.strip().splitlines()
    return f", saying: {lines[-1].strip()}" if lines else ""


def _describe_approval(trace: HandlerTrace, id_: str) -> str:
    sent = trace.approvals_of(id_)
    return f"; it approved it {trace.time_text(sent[0].at)}" if sent else "; it did not approve it"


def _count_text(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
