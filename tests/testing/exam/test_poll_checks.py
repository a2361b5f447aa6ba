"""Verdicts of the poll and exit checks on hand-made traces."""

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
from forewarn.testing.exam.stall_watcher import Stall
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
    WARNED,
    ask,
    post,
    record,
    seen,
)

AFTER_ERROR = (ask(0.5), ask(1.0, status=500), ask(31.0), ask(32.0))
RARELY = (ask(1.0), ask(101.0), ask(201.0))
EMPTY = seen(2.0, "GET", PATH, 200)

JUDGED: dict[str, tuple[Check, HandlerTrace, Verdict]] = {
    "polls once a second": (PollIntervalCheck(), record(*EVERY_SECOND), KEPT),
    "one long interval": (PollIntervalCheck(), record(*EVERY_SECOND[:5], ask(9.5)), KEPT),
    "long intervals": (PollIntervalCheck(), record(ask(1.0), ask(8.0), ask(15.0), finished_at=16.0), WARNED),
    "sleeps for the longest interval": (
        PollIntervalCheck(),
        record(ask(1.0), ask(6.1), ask(11.2), finished_at=12.0),
        KEPT,
    ),
    "errors of the endpoint while it sleeps for the longest interval": (
        PollIntervalCheck(),
        record(ask(1.0), ask(6.1, status=500), ask(11.2, status=500), ask(16.3), ask(21.4), finished_at=22.0),
        KEPT,
    ),
    "silence at the end": (PollIntervalCheck(), record(*EVERY_SECOND[:2], finished_at=33.0), BROKEN),
    "stall of the machine at the end": (
        PollIntervalCheck(),
        record(*EVERY_SECOND[:2], finished_at=33.0, stalls=[Stall(3.0, 33.0, 27.0)]),
        KEPT,
    ),
    "long intervals on a busy machine": (
        PollIntervalCheck(),
        record(ask(1.0), ask(8.0), ask(15.0), finished_at=16.0, stalls=[Stall(1.0, 15.0, 12.0, 12.0)]),
        KEPT,
    ),
    "silence during a long poll": (
        PollIntervalCheck(),
        record(ask(0.5), ask(1.0), seen(1.1, "GET", PATH, None)),
        KEPT,
    ),
    "silence after the removal of the VM": (PollIntervalCheck(), record(*EVERY_SECOND[:2], vm_removed_at=2.5), KEPT),
    "intervals as long as the notice of an eviction": (
        PollIntervalCheck(),
        record(ask(1.0), ask(32.0), ask(63.0), finished_at=64.0),
        BROKEN,
    ),
    "backoff after an error response": (
        PollIntervalCheck(),
        record(ask(0.5), ask(1.0, status=429), ask(3.0, status=429), ask(7.0), ask(8.0), finished_at=9.0),
        KEPT,
    ),
    "pauses after errors that cost half the notice of an eviction": (
        PollIntervalCheck(),
        record(ask(0.5), ask(1.0, status=500), ask(9.0, status=500), ask(17.0), ask(18.0), finished_at=18.0),
        WARNED,
    ),
    "pauses after errors in which an eviction would be missed": (
        PollIntervalCheck(),
        record(ask(0.5), ask(1.0, status=500), ask(16.0, status=500), ask(31.0), ask(32.0), finished_at=33.0),
        BROKEN,
    ),
    "delay of the handler after an error on a busy machine": (
        PollIntervalCheck(),
        record(*AFTER_ERROR, finished_at=33.0, stalls=[Stall(1.0, 30.0, 27.0, 26.0)]),
        KEPT,
    ),
    "pause after an error while the machine is busy": (
        PollIntervalCheck(),
        record(*AFTER_ERROR, finished_at=33.0, stalls=[Stall(1.0, 30.0, 27.0)]),
        BROKEN,
    ),
    "delays that may be longer than every pause": (
        PollIntervalCheck(),
        record(*RARELY, finished_at=201.0, stalls=[Stall(1.0, 201.0, 199.0, 199.0)]),
        OPEN,
    ),
    "a machine without a processor for the program that starts the handler again and again": (
        PollIntervalCheck(),
        record(*RARELY, finished_at=201.0, stalls=[Stall(1.0, 201.0, 199.0)], one_shot_runs=3),
        OPEN,
    ),
    "pauses that are too long without every delay": (
        PollIntervalCheck(),
        record(*RARELY, finished_at=201.0, stalls=[Stall(1.0, 201.0, 188.0, 188.0)]),
        WARNED,
    ),
    "pauses after errors that may be only half as long as measured": (
        PollIntervalCheck(),
        record(ask(0.0), ask(0.0, status=500), ask(290.0), finished_at=290.0, stalls=[Stall(0.0, 290.0, 272.0, 272.0)]),
        OPEN,
    ),
    "pause after an empty body": (PollIntervalCheck(), record(ask(1.0), EMPTY, ask(33.0), finished_at=34.0), BROKEN),
    "no poll in the whole scenario": (PollCheck(), record(), BROKEN),
    "no poll before the time limit": (PollCheck(), record(is_timed_out=True), OPEN),
    "ended without a poll": (PollCheck(), record(is_timed_out=True, ended=DEAD), BROKEN),
    "no poll, so no interval": (PollIntervalCheck(), record(), OPEN),
    "polls without a pause": (RateLimitCheck(), record(*EVERY_MOMENT), BROKEN),
    "polls more often than the log keeps": (RateLimitCheck(), record(*EVERY_MOMENT, dropped=9), BROKEN),
    "polls without a pause, but the machine was busy at times": (
        RateLimitCheck(),
        record(*EVERY_MOMENT[:12], *(ask(float(second)) for second in range(2, 40))),
        BROKEN,
    ),
    "small burst": (RateLimitCheck(), record(*EVERY_MOMENT[:8]), KEPT),
    "long polls do not count": (
        RateLimitCheck(),
        record(*(ask(moment / 50, target=f"{PATH}&wait=60") for moment in range(1, 50))),
        KEPT,
    ),
    "invalid request": (ValidRequestCheck(), record(ask(1.0), ask(2.0, status=400)), BROKEN),
    "falls back to another version": (ValidRequestCheck(), record(ask(1.0, status=404), ask(2.0)), KEPT),
    "finds no version": (ValidRequestCheck(), record(ask(1.0, status=404), ask(2.0, status=404)), BROKEN),
    "errors of the endpoint": (ValidRequestCheck(), record(ask(1.0, status=410), ask(2.0, status=500), ask(3.0)), KEPT),
    "ends with exit code 0": (RunningCheck(), record(ask(1.0), ended=ProcessExit(0, 2.0)), BROKEN),
    "ends after its approval": (ExitCheck(), record(ask(1.0, SCHEDULED), post(1.1, "A"), ended=DEAD), KEPT),
    "ends after the removal of its VM": (ExitCheck(), record(ask(1.0, SCHEDULED), vm_removed_at=1.5, ended=DEAD), KEPT),
    "ends before the removal of its VM": (ExitCheck(), record(ask(1.0, SCHEDULED), ended=DEAD), BROKEN),
    "polls through a proxy": (ProxyCheck(), record(ask(1.0, target=f"http://169.254.169.254{PATH}")), BROKEN),
    "URL in the query string": (ProxyCheck(), record(ask(1.0, target=f"{PATH}&x=http://y")), KEPT),
}


@pytest.mark.parametrize(("demand", "happened", "verdict"), JUDGED.values(), ids=JUDGED)
def test_verdict(demand: Check, happened: HandlerTrace, verdict: Verdict) -> None:
    finding = evaluate(demand, happened, Expectations())
    assert finding.verdict is verdict, finding
    assert finding.seen


@pytest.mark.parametrize(
    ("happened", "is_conclusive"),
    [
        (record(*AFTER_ERROR, finished_at=33.0), True),
        (record(*RARELY, finished_at=201.0), True),
        (record(*EVERY_SECOND[:2], finished_at=33.0), False),
        (record(*EVERY_SECOND), False),
    ],
    ids=["pause after an error", "long intervals", "silence at the end", "polls once a second"],
)
def test_pauses_that_are_too_long_without_every_delay_are_conclusive(
    happened: HandlerTrace, is_conclusive: bool
) -> None:
    """The exam need not repeat the scenario on a busy machine."""
    assert evaluate(PollIntervalCheck(), happened, Expectations()).is_conclusive == is_conclusive


HALF_AS_LONG = JUDGED["pauses after errors that may be only half as long as measured"][1]


@pytest.mark.parametrize(
    ("happened", "is_uncertain"),
    [
        (HALF_AS_LONG, True),
        (JUDGED["delays that may be longer than every pause"][1], False),
        (record(*AFTER_ERROR, finished_at=33.0), False),
    ],
    ids=["pauses that may be too long", "pauses that may be long enough for a warning", "pauses that are too long"],
)
def test_verdict_against_the_handler_is_uncertain_if_delays_may_be_the_reason(
    happened: HandlerTrace, is_uncertain: bool
) -> None:
    assert evaluate(PollIntervalCheck(), happened, Expectations()).is_uncertain == is_uncertain
