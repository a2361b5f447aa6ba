"""Check interface: a check is a value that evaluates the trace of a handler and returns a verdict.

A check whose situation did not occur, or whose subject cannot be observed, is "not judged"; it never counts as kept.
"""

from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from forewarn.testing.exam.expectations import Expectations
from forewarn.testing.exam.trace import HandlerTrace

TOLERANCE = 0.5
"""How many available seconds after a response a handler may still act on older information."""


class Polarity(StrEnum):
    """Whether the handler must, or must not, behave like this."""

    MUST = "must"
    MUST_NOT = "must not"


class Verdict(StrEnum):
    """The verdict of a check. A warning is about behaviour that Azure tolerates: it fails neither check nor exam."""

    KEPT = "kept"
    WARNING = "warning"
    BROKEN = "broken"
    NOT_JUDGED = "not judged"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A check and its verdict. `expected` is the check as a sentence, `seen` is what was observed on the wire."""

    demand: str
    mood: Polarity
    expected: str
    verdict: Verdict
    seen: str
    is_exercised: bool = True
    """False if the situation of the check did not occur."""
    event_kind: str | None = None
    """Type and source of the event that the check is about: `Reboot/Platform`."""
    advice: str = ""
    """What to do about it, if the observation alone does not show it."""
    is_conclusive: bool = False
    """Whether a busy machine cannot be the reason, although the check is one of time."""
    is_uncertain: bool = False
    """Whether it would be broken, but the machine was too busy to be sure."""


class CheckResult(msgspec.Struct, frozen=True):
    """A verdict and its reason."""

    verdict: Verdict
    seen: str
    polarity: Polarity | None = None
    """Set if the user's expectations reverse the check."""
    is_exercised: bool = True
    event_kind: str | None = None
    advice: str = ""
    is_conclusive: bool = False
    is_uncertain: bool = False


class Check(Protocol):
    """One check of a scenario."""

    needs_all_requests: ClassVar[bool]
    """Whether it cannot be evaluated when some of the handler's requests were dropped from the log."""

    @property
    def key(self) -> str:
        """The name of the check, unique in the scenario."""
        ...

    @property
    def polarity(self) -> Polarity:
        """Whether the handler must, or must not, do this."""
        ...

    @property
    def description(self) -> str:
        """What the handler must, or must not, do."""
        ...

    def evaluate(self, trace: HandlerTrace, expectations: Expectations) -> CheckResult:
        """Evaluate the trace."""
        ...


def evaluate(check: Check, trace: HandlerTrace, expectations: Expectations) -> Finding:
    """Evaluate one check. If the request log has dropped requests, checks that need all requests are not judged."""
    if trace.dropped and check.needs_all_requests:
        result = not_judged(f"it sent more requests than the log keeps; {trace.dropped} were dropped")
    else:
        result = check.evaluate(trace, expectations)
    polarity = result.polarity or check.polarity
    return Finding(
        demand=check.key,
        mood=polarity,
        expected=f"{polarity} {check.description}",
        verdict=result.verdict,
        seen=result.seen,
        is_exercised=result.is_exercised,
        event_kind=result.event_kind,
        advice=result.advice,
        is_conclusive=result.is_conclusive,
        is_uncertain=result.is_uncertain,
    )


def kept(seen: str) -> CheckResult:
    """Return the result of a check that is kept."""
    return CheckResult(Verdict.KEPT, seen)


def broken(seen: str) -> CheckResult:
    """Return the result of a check that is broken."""
    return CheckResult(Verdict.BROKEN, seen)


def warning(seen: str) -> CheckResult:
    """Return the result of a check that is broken in a way that Azure tolerates."""
    return CheckResult(Verdict.WARNING, seen)


def not_judged(why: str, *, is_exercised: bool = False) -> CheckResult:
    """Return the result of a check that cannot be judged, with the reason.

    `is_exercised`: the situation occurred, but the user's options leave open what is right.
    """
    return CheckResult(Verdict.NOT_JUDGED, why, is_exercised=is_exercised)


def is_late(trace: HandlerTrace, known_at: float, acted_at: float) -> bool:
    """Return whether a handler acted on information that had been outdated for more than TOLERANCE."""
    return acted_at > known_at and trace.available(known_at, acted_at) > TOLERANCE


def describe_exit(trace: HandlerTrace) -> str:
    """Return a clause with the handler's exit code and the time at which it ended."""
    ended = trace.exit_status
    return "it ended" if ended is None else f"it ended with exit code {ended.code} {trace.time_text(ended.at)}"


def last_output(trace: HandlerTrace) -> str:
    """Return the last line of the handler's output, as the end of a sentence."""
    lines = trace.output.strip().splitlines()
    return f"; last line of output: {lines[-1].strip()}" if lines else ""


def count_text(number: int) -> str:
    """Return `once` or `n times`."""
    return "once" if number == 1 else f"{number} times"
