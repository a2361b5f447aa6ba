"""What is judged, and how: on records made by hand, without any program."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from forewarn.guest.observer import Observed
from forewarn.testing.exam import Expectations, Verdict, parse_expectations
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    EndedApprovalCheck,
    OtherVmApprovalCheck,
    RepeatedApprovalCheck,
    StartedApprovalCheck,
)
from forewarn.testing.exam.checks import Check, evaluate
from forewarn.testing.exam.effect_checks import PrepareCheck, RecoverCheck
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

OWN, OTHER, BOTH = ("web-0",), ("web-1",), ("web-0", "web-1")
PATH = "/metadata/scheduledevents?api-version=2020-07-01"
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)

Events = Sequence[tuple[str, str, tuple[str, ...]]]
"""Ids, statuses and resources, as a document tells them."""


def ask(at: float, *events: tuple[str, str, tuple[str, ...]], status: int = 200, target: str = PATH) -> Observed:
    body = json.dumps({"DocumentIncarnation": 1, "Events": [event(*each) for each in events]}).encode()
    return seen(at, "GET", target, status, answer=body if status == 200 else b"")


def event(id_: str, status: str, resources: tuple[str, ...]) -> dict[str, object]:
    return {
        "EventId": id_,
        "EventStatus": status,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": resources,
        "NotBefore": "" if status == "Started" else "Mon, 19 Sep 2016 18:29:47 GMT",
    }


def post(at: float, *ids: str, status: int = 200) -> Observed:
    return seen(at, "POST", PATH, status, approved=ids)


def seen(
    at: float, method: str, target: str, status: int | None, *, answer: bytes = b"", approved: tuple[str, ...] = ()
) -> Observed:
    return Observed(
        number=int(at * 1000),
        vm="web/web-0",
        at=at,
        wall=ANY_TIME,
        method=method,
        target=target,
        status=status,
        approved=approved,
        answered_at=None if status is None else at,
        answer=answer,
    )


def record(
    *requests: Observed,
    finished_at: float = 10.0,
    ended: ProcessExit | None = None,
    vm_removed_at: float | None = None,
    is_finished: bool = True,
    is_timed_out: bool = False,
    dropped: int = 0,
    prepared: Sequence[float] | None = None,
    recovered: Sequence[float] | None = None,
) -> HandlerTrace:
    return HandlerTrace(
        vm="web-0",
        requests=requests,
        labels={"E1": "A", "E2": "B"},
        began_at=0.0,
        finished_at=finished_at,
        exit_status=ended,
        vm_removed_at=vm_removed_at,
        is_finished=is_finished,
        is_timed_out=is_timed_out,
        dropped=dropped,
        prepared=prepared,
        recovered=recovered,
    )


SCHEDULED, STARTED = ("A", "Scheduled", OWN), ("A", "Started", OWN)
OTHERS, SHARED = ("A", "Scheduled", OTHER), ("A", "Scheduled", BOTH)
EVERY_SECOND = tuple(ask(float(second)) for second in range(1, 11))
EVERY_MOMENT = tuple(ask(moment / 50) for moment in range(1, 50))
DEAD = ProcessExit(1, 2.0)
KEPT, BROKEN, OPEN = Verdict.KEPT, Verdict.BROKEN, Verdict.NOT_JUDGED

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
    "and what else it did nobody knows": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0), dropped=9), OPEN),
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
    "approved in time": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A"), ask(2.0, STARTED)), KEPT),
    "approved too late": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")), BROKEN),
    "approval crosses the start": (
        ApprovalCheck("E1"),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")),
        KEPT,
    ),
    "not approved": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0, SCHEDULED)), BROKEN),
    "approval was refused": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A", status=400)), OPEN),
    "died before it could": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ended=DEAD), OPEN),
    "time was over": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), is_finished=False), OPEN),
    "never told": (ApprovalCheck("E1"), record(ask(1.0)), OPEN),
    "told as Started only": (ApprovalCheck("E1"), record(ask(1.0, STARTED)), OPEN),
    "shared, and nobody said": (ApprovalCheck("E1"), record(ask(1.0, SHARED)), OPEN),
    "like the one before": (
        ApprovalCheck("E2", like="E1"),
        record(ask(1.0, SHARED), post(1.1, "A"), ask(2.0, ("B", "Scheduled", BOTH)), ask(3.0)),
        BROKEN,
    ),
    "approves another's": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS), post(1.1, "A")), BROKEN),
    "leaves another's": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS)), KEPT),
    "shared is no other's": (OtherVmApprovalCheck(), record(ask(1.0, SHARED), post(1.1, "A")), OPEN),
    "approves a failure": (StartedApprovalCheck(), record(ask(1.0, STARTED), post(1.1, "A")), BROKEN),
    "news crosses it": (StartedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")), KEPT),
    "news is old": (StartedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")), BROKEN),
    "gone for long": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(3.0, "A")), BROKEN),
    "gone just now": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(2.1, "A")), KEPT),
    "repeats it once": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in (1, 2))), KEPT),
    "repeats it for ever": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in range(1, 6))), BROKEN),
    "refusals do not count": (
        RepeatedApprovalCheck(),
        record(*(post(float(n), "A", status=500) for n in range(6))),
        OPEN,
    ),
    "prepared first": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), prepared=[1.5]), KEPT),
    "approved first": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), prepared=[2.5]), BROKEN),
    "prepared before the event": (PrepareCheck("E1"), record(ask(5.0, SCHEDULED), prepared=[1.0]), BROKEN),
    "no marker": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A")), OPEN),
    "recovered": (RecoverCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), ask(3.0), recovered=[3.2]), KEPT),
    "recovered too early": (
        RecoverCheck("E1"),
        record(ask(1.0, SCHEDULED), post(2.0, "A"), ask(9.0), recovered=[2.2]),
        BROKEN,
    ),
    "nothing to recover from": (RecoverCheck("E1"), record(ask(1.0, SCHEDULED), ask(3.0), recovered=[]), OPEN),
}


@pytest.mark.parametrize(("demand", "happened", "verdict"), JUDGED.values(), ids=JUDGED)
def test_verdict(demand: Check, happened: HandlerTrace, verdict: Verdict) -> None:
    finding = evaluate(demand, happened, Expectations())
    assert finding.verdict is verdict, finding
    assert finding.seen


WISHED: dict[str, tuple[list[str], bool, Verdict]] = {
    "approves what is to be ignored": (["ignore"], True, BROKEN),
    "ignores what is to be ignored": (["Reboot=ignore"], False, KEPT),
    "another type does not matter": (["Freeze=ignore"], True, KEPT),
    "either is right": (["either"], False, OPEN),
    "what is said later counts": (["ignore", "reboot=approve"], True, KEPT),
    "a word for all takes back what was said": (["Reboot=ignore", "approve"], False, BROKEN),
}


@pytest.mark.parametrize(("said", "approves", "verdict"), WISHED.values(), ids=WISHED)
def test_wishes_turn_a_demand_round(said: list[str], approves: bool, verdict: Verdict) -> None:
    happened = record(ask(1.0, SCHEDULED), *([post(1.5, "A")] if approves else []), ask(2.0, SCHEDULED))
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(said)).verdict is verdict


def test_shared_events_are_judged_where_that_is_wanted() -> None:
    happened = record(ask(1.0, SHARED), ask(2.0, SHARED))
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(["shared=approve"])).verdict is BROKEN


def test_leader_may_approve_for_others() -> None:
    happened = record(ask(1.0, OTHERS), post(1.1, "A"))
    assert evaluate(OtherVmApprovalCheck(), happened, parse_expectations([], for_others=True)).verdict is OPEN
