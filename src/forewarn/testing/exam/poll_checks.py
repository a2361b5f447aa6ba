"""Checks of a handler's polling: valid requests, poll interval, rate limit, no proxy, and that it keeps running."""

from itertools import pairwise
from statistics import median
from typing import ClassVar

import msgspec

from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.guest.observer import Observed
from forewarn.testing.exam.checks import (
    CheckResult,
    Polarity,
    Verdict,
    broken,
    count_text,
    describe_exit,
    kept,
    last_output,
    not_judged,
    warning,
)
from forewarn.testing.exam.expectations import Expectations
from forewarn.testing.exam.trace import GOOD_STATUSES, HandlerTrace, is_long_poll

MAX_POLL_INTERVAL = 5.0
"""The longest interval between two polls, in seconds. Azure recommends one second."""

OVERHEAD = 0.5
"""How many seconds longer than its sleep a handler may take from poll to poll before it gets a warning."""

NOTICE = EVENT_TYPES[EventType.PREEMPT].minimum_notice.total_seconds()
"""The shortest notice on Azure, in seconds: that of an eviction."""

TOO_LONG = NOTICE - 2.0
"""The longest pause, in seconds: after it, a handler would have less than two seconds left."""

MISSED = f"an eviction, with {NOTICE:g} s of notice, would have been missed"

MIN_POLL_INTERVAL = 0.2
"""The shortest interval between two polls, in seconds: a real endpoint refuses more than five requests per second."""

MIN_INTERVALS = 10
"""How many intervals in succession must be too short on average."""

INVALID_REQUEST_STATUSES = frozenset({400, 405, 413, 431})

VERSION_NOT_FOUND = 404


class PollCheck(msgspec.Struct, frozen=True):
    """The handler polls its events."""

    key: ClassVar[str] = "asks"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "poll its events: GET /metadata/scheduledevents"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for the first poll."""
        if trace.polls:
            first = trace.polls[0]
            return kept(f"{first.method} {first.target} {trace.time_text(first.at)}")
        if trace.is_timed_out and trace.exit_status is None:
            return not_judged("the scenario's time limit was reached before it could poll")
        others = ", ".join(sorted({f"{request.method} {request.target}" for request in trace.requests}))
        no_request = f"no poll within {trace.finished_at - trace.began_at:.0f} s"
        problem = f"{describe_exit(trace)} without a poll" if trace.exit_status is not None else no_request
        return broken(f"{problem}; other requests: {others}" if others else problem)


class ValidRequestCheck(msgspec.Struct, frozen=True):
    """The handler sends only valid requests."""

    key: ClassVar[str] = "asks-rightly"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "send only valid requests, each with `Metadata: true`"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for refused requests. A 404 for an api-version is allowed if the handler then uses another version."""
        if not trace.event_requests:
            return not_judged("it sent no request")
        fine_at = max((document.at for document in trace.documents), default=0.0)
        wrong = [request for request in trace.event_requests if _is_invalid(request, fine_at)]
        if not wrong:
            return kept(f"{len(trace.event_requests)} requests, none refused as invalid")
        first = wrong[0]
        body = first.answer.decode(errors="replace").strip()
        more = f"; {len(wrong)} invalid requests in total" if len(wrong) > 1 else ""
        return broken(
            f"{first.method} {first.target} {trace.time_text(first.at)} got the response {first.status}: {body}{more}"
        )


def _is_invalid(request: Observed, fine_at: float) -> bool:
    return request.status in INVALID_REQUEST_STATUSES or (request.status == VERSION_NOT_FOUND and request.at > fine_at)


class PollIntervalCheck(msgspec.Struct, frozen=True):
    """The handler polls at short intervals and never stops polling."""

    key: ClassVar[str] = "asks-often"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = f"poll again within {MAX_POLL_INTERVAL:g} s (median of all intervals), and never stop"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Measure the intervals by what the handler would have missed: the notice of an eviction is NOTICE seconds.

        A verdict against the handler holds only if its pauses are too long without every delay by the machine.
        """
        if not trace.polls:
            return not_judged("it sent no request")
        result, least = _judge_pauses(trace), _judge_pauses(trace, at_least=True)
        if result.verdict is least.verdict:
            # Pauses are too long even without the delays; a silence may end after them.
            is_conclusive = result.verdict is Verdict.BROKEN and _final_silence(trace) < TOO_LONG
            return msgspec.structs.replace(result, is_conclusive=is_conclusive)
        unknown = not_judged(f"the machine was too busy to measure its pauses: {result.seen}")
        return msgspec.structs.replace(unknown, is_uncertain=result.verdict is Verdict.BROKEN)


def _judge_pauses(trace: HandlerTrace, *, at_least: bool = False) -> CheckResult:
    """Judge the handler's pauses between its polls, as they were measured or as short as they may have been."""
    silence = _final_silence(trace)
    if silence >= TOO_LONG:
        return broken(f"it polled {count_text(len(trace.polls))}, but not in the last {silence:.1f} s; {MISSED}")
    blind = max(_blind_times(trace, at_least=at_least), default=PollPause(0.0))
    if blind.errors and blind.seconds >= TOO_LONG:
        return broken(f"{blind.text}; {MISSED}")
    gaps = _poll_intervals(trace, at_least=at_least)
    if not gaps:
        return not_judged("it polled once, and there was no time for more")
    middle = median(gaps)
    seen = f"{len(trace.polls)} polls, median interval {middle:.1f} s, longest {max(gaps):.1f} s"
    if middle >= TOO_LONG:
        return broken(f"{seen}; {MISSED}")
    if blind.errors and blind.seconds >= NOTICE / 2 + OVERHEAD:
        left = NOTICE - blind.seconds
        return warning(f"{blind.text}: of the {NOTICE:g} s of notice of an eviction, only {left:.0f} s would be left")
    return kept(seen) if middle <= MAX_POLL_INTERVAL + OVERHEAD else warning(seen)


class PollPause(msgspec.Struct, frozen=True, order=True):
    """How many seconds passed from one good response to the next poll with a good response, with errors between them.

    The time that the service took for its responses does not count.
    """

    seconds: float
    errors: tuple[str, ...] = ()
    """The error responses."""

    @property
    def text(self) -> str:
        """What was observed, as a clause."""
        kinds = ", ".join(dict.fromkeys(self.errors))
        pauses = "its pause after an error" if len(self.errors) == 1 else f"its pauses after {len(self.errors)} errors"
        return f"because of {pauses} ({kinds}), it received no document for {self.seconds:.1f} s"


def _blind_times(trace: HandlerTrace, *, at_least: bool) -> list[PollPause]:
    found, last_at, errors, pauses = list[PollPause](), None, list[str](), 0.0
    for poll in trace.polls:
        if last_at is not None:
            pauses += trace.paused(last_at, poll.at, at_least=at_least)
        if trace.is_good(poll):
            found.append(PollPause(pauses, tuple(errors)))
            errors, pauses = [], 0.0
        else:
            errors.append(_error_text(poll))
        last_at = poll.answered_at or poll.at
    return found


def _error_text(poll: Observed) -> str:
    if poll.status is None:
        return "no response"
    return "no valid document" if poll.status == 200 else f"status {poll.status}"


def _poll_intervals(trace: HandlerTrace, *, at_least: bool) -> list[float]:
    """Return the seconds from each good response to the next poll; pauses after an error are blind times."""
    return [
        trace.paused(earlier.answered_at, later.at, at_least=at_least)
        for earlier, later in pairwise(trace.polls)
        if earlier.answered_at is not None and earlier.status in GOOD_STATUSES
    ]


def _final_silence(trace: HandlerTrace) -> float:
    """Return the seconds since the last response, or 0 if the handler could not have polled since then."""
    last = trace.requests[-1]
    if last.status is None or trace.exit_status is not None or trace.vm_removed_at is not None:
        return 0.0
    return trace.available(last.answered_at or last.at, trace.finished_at)


class RateLimitCheck(msgspec.Struct, frozen=True):
    """The handler stays within the rate limit of a real endpoint."""

    key: ClassVar[str] = "hammers"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = False
    description: ClassVar[str] = "poll more than 5 times per second: a real endpoint then responds with 429"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Find the fastest MIN_INTERVALS intervals in succession: a busy machine slows the others down.

        The interval begins with the response, so that it is never shorter than the handler's own pause. Long polls do
        not count.
        """
        if not trace.polls:
            return not_judged("it sent no request")
        polls = [poll for poll in trace.polls if not is_long_poll(poll)]
        gaps = [max(0.0, later.at - (earlier.answered_at or earlier.at)) for earlier, later in pairwise(polls)]
        if len(gaps) < MIN_INTERVALS:
            return kept(f"{len(trace.polls)} polls in total")
        runs = (gaps[start : start + MIN_INTERVALS] for start in range(len(gaps) - MIN_INTERVALS + 1))
        shortest = min(map(sum, runs)) / MIN_INTERVALS
        seen = f"{len(polls)} polls, {MIN_INTERVALS} of them with {shortest:.2f} s between them"
        return broken(seen) if shortest < MIN_POLL_INTERVAL else kept(seen)


class RunningCheck(msgspec.Struct, frozen=True):
    """The handler keeps running, because another event can follow."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "keep running during the whole scenario"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for an exit status."""
        if trace.exit_status is not None:
            return broken(f"{describe_exit(trace)}{last_output(trace)}")
        if trace.one_shot_runs is not None:
            return kept(f"it ran {count_text(trace.one_shot_runs)}, each time with exit code 0")
        return kept("it was still running at the end")


class ExitCheck(msgspec.Struct, frozen=True):
    """The handler does not end too early: only after the VM is removed, the event started, or it has approved."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "keep running until it has approved or the event has started"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Compare the exit status with approvals, started events and the removal of the VM."""
        if trace.exit_status is None:
            return kept("it was still running at the end")
        has_reason = any(approval.is_accepted for approval in trace.approvals) or any(
            event.is_started for document in trace.documents for event in document.events.values()
        )
        is_gone = trace.vm_removed_at is not None and trace.vm_removed_at <= trace.exit_status.at
        if has_reason or is_gone:
            return kept(f"{describe_exit(trace)}, when nothing was left to do")
        return broken(f"{describe_exit(trace)}{last_output(trace)}")


class ProxyCheck(msgspec.Struct, frozen=True):
    """The handler uses no proxy: the endpoint is link-local, so a proxy cannot reach it for the VM."""

    key: ClassVar[str] = "uses-proxy"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "send requests through the proxy of the environment variables"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for requests with an absolute URL, which clients send only to a proxy."""
        if not trace.requests:
            return not_judged("it sent no request")
        sent = [request for request in trace.requests if "://" in request.target.partition("?")[0]]
        if sent:
            return broken(f"{sent[0].method} {sent[0].target} {trace.time_text(sent[0].at)} was sent to the proxy")
        return kept(f"{len(trace.requests)} requests, all sent directly to the endpoint")
