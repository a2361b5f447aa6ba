"""How a handler asks and how it ends: the verdicts on traces made by hand."""

import pytest

from forewarn.testing.exam import Expectations, Verdict
from forewarn.testing.exam.checks import Check, evaluate
from forewarn.testing.exam.poll_checks import (
    ExitCheck,
    PollCheck,
    PollIntervalCheck,
    ProxyCheck,
    RateLimitCheck,
    RunningCheck,
    ValidRequestCheck,
)
from forewarn.testing.exam.trace import HandlerTrace, ProcessExit
from tests.testing.exam.traces import (
    BROKEN,
    DEAD,
    EVERY_MOMENT,
    EVERY_SECOND,
    KEPT,
    OPEN,
    PATH,
    SCHEDULED,
    ask,
    post,
    record,
    seen,
)

JUDGED: dict[str, tuple[Check, HandlerTrace, Verdict]] = {
    "asks once a second": (PollIntervalCheck(), record(*EVERY_SECOND), KEPT),
    "one long gap is a busy machine": (PollIntervalCheck(), record(*EVERY_SECOND[:5], ask(9.5)), KEPT),
    "gaps are long": (PollIntervalCheck(), record(ask(1.0), ask(8.0), ask(15.0), finished_at=16.0), BROKEN),
    "silence in the end": (PollIntervalCheck(), record(*EVERY_SECOND[:2]), BROKEN),
    "silence of who waits": (PollIntervalCheck(), record(ask(0.5), ask(1.0), seen(1.1, "GET", PATH, None)), KEPT),
    "silence of a VM that is gone": (PollIntervalCheck(), record(*EVERY_SECOND[:2], vm_removed_at=2.5), KEPT),
    "pause after a wrong answer": (
        PollIntervalCheck(),
        record(ask(0.5), ask(1.0, status=429), ask(9.0, status=429), ask(17.0), finished_at=18.0),
        KEPT,
    ),
    "never asked, and had the time to": (PollCheck(), record(), BROKEN),
    "never asked, but the machine had no time": (PollCheck(), record(is_timed_out=True), OPEN),
    "ended, and never asked": (PollCheck(), record(is_timed_out=True, ended=DEAD), BROKEN),
    "never asked": (PollIntervalCheck(), record(), OPEN),
    "asks without a pause": (RateLimitCheck(), record(*EVERY_MOMENT), BROKEN),
    "asks more than anybody can remember": (RateLimitCheck(), record(*EVERY_MOMENT, dropped=9), BROKEN),
    "a burst of few": (RateLimitCheck(), record(*EVERY_MOMENT[:8]), KEPT),
    "held questions have no pace": (
        RateLimitCheck(),
        record(*(ask(moment / 50, target=f"{PATH}&wait=60") for moment in range(1, 50))),
        KEPT,
    ),
    "refused for its form": (ValidRequestCheck(), record(ask(1.0), ask(2.0, status=400)), BROKEN),
    "another version is found": (ValidRequestCheck(), record(ask(1.0, status=404), ask(2.0)), KEPT),
    "no version is found": (ValidRequestCheck(), record(ask(1.0, status=404), ask(2.0, status=404)), BROKEN),
    "faults are not its own": (ValidRequestCheck(), record(ask(1.0, status=410), ask(2.0, status=500), ask(3.0)), KEPT),
    "ends with 0": (RunningCheck(), record(ask(1.0), ended=ProcessExit(0, 2.0)), BROKEN),
    "ends after its approval": (ExitCheck(), record(ask(1.0, SCHEDULED), post(1.1, "A"), ended=DEAD), KEPT),
    "ends after its VM": (ExitCheck(), record(ask(1.0, SCHEDULED), vm_removed_at=1.5, ended=DEAD), KEPT),
    "ends before its VM": (ExitCheck(), record(ask(1.0, SCHEDULED), ended=DEAD), BROKEN),
    "asks a proxy": (ProxyCheck(), record(ask(1.0, target=f"http://169.254.169.254{PATH}")), BROKEN),
    "a URL in the query is no proxy": (ProxyCheck(), record(ask(1.0, target=f"{PATH}&x=http://y")), KEPT),
}


@pytest.mark.parametrize(("demand", "happened", "verdict"), JUDGED.values(), ids=JUDGED)
def test_verdict(demand: Check, happened: HandlerTrace, verdict: Verdict) -> None:
    finding = evaluate(demand, happened, Expectations())
    assert finding.verdict is verdict, finding
    assert finding.seen
