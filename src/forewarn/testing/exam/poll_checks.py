"""Checks of a handler's polling: valid requests, poll interval, rate limit, no proxy, and that it keeps running."""

from itertools import pairwise
from statistics import median
from typing import ClassVar

import msgspec

from forewarn.guest.observer import Observed
from forewarn.testing.exam.checks import (
    CheckResult,
    Polarity,
    broken,
    count_text,
    describe_exit,
    kept,
    last_output,
    not_judged,
)
from forewarn.testing.exam.expectations import Expectations
from forewarn.testing.exam.trace import HandlerTrace

MAX_POLL_INTERVAL = 5.0
"""After how many seconds a handler asks again, at the latest. Once a second is advised."""

MAX_SILENCE = 7.5
"""After how many seconds of silence at the end it is clear that nothing more comes."""

MIN_POLL_INTERVAL = 0.2
"""A real endpoint refuses more than five requests in a second."""

MIN_INTERVALS = 10
"""Of fewer gaps nobody can say that they are too short."""

INVALID_REQUEST_STATUSES = frozenset({400, 405, 413, 431})

VERSION_NOT_FOUND = 404


class PollCheck(msgspec.Struct, frozen=True):
    """The program polls for its events at all."""

    key: ClassVar[str] = "asks"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "ask for its events: GET /metadata/scheduledevents"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for the first poll."""
        if trace.polls:
            first = trace.polls[0]
            return kept(f"{first.method} {first.target} {trace.time_text(first.at)}")
        if trace.is_timed_out and trace.exit_status is None:
            return not_judged("the time was over before it could")
        others = ", ".join(sorted({f"{request.method} {request.target}" for request in trace.requests}))
        no_request = f"no such request within {trace.finished_at - trace.began_at:.0f} s"
        problem = f"{describe_exit(trace)} without such a request" if trace.exit_status is not None else no_request
        return broken(f"{problem}, but {others}" if others else problem)


class ValidRequestCheck(msgspec.Struct, frozen=True):
    """No request is refused because it is wrong."""

    key: ClassVar[str] = "asks-rightly"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "make only requests that the endpoint understands, each with `Metadata: true`"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Look for refusals. A version that is not supported is none if the program finds another."""
        if not trace.event_requests:
            return not_judged("it has not asked")
        fine_at = max((document.at for document in trace.documents), default=0.0)
        wrong = [request for request in trace.event_requests if _is_invalid(request, fine_at)]
        if not wrong:
            return kept(f"{len(trace.event_requests)} requests, none refused for its form")
        first = wrong[0]
        body = first.answer.decode(errors="replace").strip()
        more = f"; {len(wrong)} such in all" if len(wrong) > 1 else ""
        return broken(
            f"{first.method} {first.target} {trace.time_text(first.at)} was answered {first.status}: {body}{more}"
        )


def _is_invalid(request: Observed, fine_at: float) -> bool:
    return request.status in INVALID_REQUEST_STATUSES or (request.status == VERSION_NOT_FOUND and request.at > fine_at)


class PollIntervalCheck(msgspec.Struct, frozen=True):
    """The intervals between two polls are short, and the program never stops polling."""

    key: ClassVar[str] = "asks-often"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = f"ask again within {MAX_POLL_INTERVAL:g} s, on the median of all gaps, and never stop"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Measure from each good response to the next poll, and from the last response to the end."""
        if not trace.polls:
            return not_judged("it has not asked")
        gaps = _poll_intervals(trace)
        silence = _final_silence(trace)
        if silence > MAX_SILENCE:
            return broken(f"it asked {count_text(len(trace.polls))}, and nothing more for the last {silence:.1f} s")
        if not gaps:
            return not_judged("it asked once, and there was no time for more")
        middle = median(gaps)
        seen = f"{len(trace.polls)} questions, {middle:.1f} s between two (longest {max(gaps):.1f} s)"
        return kept(seen) if middle <= MAX_POLL_INTERVAL else broken(seen)


def _poll_intervals(trace: HandlerTrace) -> list[float]:
    """Return the seconds between a good response and the next poll; after an error a program may back off."""
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
    """The program stays within the rate limit of a real endpoint."""

    key: ClassVar[str] = "hammers"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = False
    description: ClassVar[str] = "ask more than 5 times in a second: a real endpoint then answers 429"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """Take the median interval, so that a machine that stutters does not count. Long polls do not count."""
        polled_at = [poll.at for poll in trace.polls if "wait=" not in poll.target.lower()]
        gaps = [later - earlier for earlier, later in pairwise(polled_at)]
        if not trace.polls:
            return not_judged("it has not asked")
        if len(gaps) < MIN_INTERVALS:
            return kept(f"{len(trace.polls)} questions in all")
        middle = median(gaps)
        seen = f"{len(polled_at)} questions, the next one after {middle:.2f} s on the median"
        return broken(seen) if middle < MIN_POLL_INTERVAL else kept(seen)


class RunningCheck(msgspec.Struct, frozen=True):
    """Whatever happens, the program does not end; after one event comes the next."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "go on running, through all of it and afterwards"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether it has ended by itself."""
        if trace.exit_status is not None:
            return broken(f"{describe_exit(trace)}{last_output(trace)}")
        return kept("it was still running in the end")


class ExitCheck(msgspec.Struct, frozen=True):
    """The VM is taken away: a program may end then, or once it has approved, but not before."""

    key: ClassVar[str] = "keeps-running"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "go on running until it has approved, or the event has started"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """See whether it has ended too early."""
        if trace.exit_status is None:
            return kept("it was still running in the end")
        has_reason = any(approval.is_accepted for approval in trace.approvals) or any(
            event.is_started for document in trace.documents for event in document.events.values()
        )
        is_gone = trace.vm_removed_at is not None and trace.vm_removed_at <= trace.exit_status.at
        if has_reason or is_gone:
            return kept(f"{describe_exit(trace)}, when there was nothing more to do")
        return broken(f"{describe_exit(trace)}{last_output(trace)}")


class ProxyCheck(msgspec.Struct, frozen=True):
    """The endpoint is link-local: no proxy can reach it for the VM."""

    key: ClassVar[str] = "uses-proxy"
    polarity: ClassVar[Polarity] = Polarity.MUST_NOT
    needs_all_requests: ClassVar[bool] = True
    description: ClassVar[str] = "send its requests to the proxy that the environment names"

    def evaluate(self, trace: HandlerTrace, _: Expectations) -> CheckResult:
        """A client that talks to a proxy sends the whole URL."""
        if not trace.requests:
            return not_judged("it has not asked")
        sent = [request for request in trace.requests if "://" in request.target.partition("?")[0]]
        if sent:
            return broken(f"{sent[0].method} {sent[0].target} {trace.time_text(sent[0].at)} came to the proxy")
        return kept(f"{len(trace.requests)} requests, all straight to the endpoint")
