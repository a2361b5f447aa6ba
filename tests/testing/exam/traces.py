"""Hand-made traces of handlers: their polls and approvals, with times."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from forewarn.guest.observer import Observed
from forewarn.testing.exam import Verdict
from forewarn.testing.exam.stall_watcher import Stall
from forewarn.testing.exam.trace import ENOUGH_LOOKS, EventKind, HandlerTrace, ProcessExit

OWN, OTHER, BOTH = ("web-0",), ("web-1",), ("web-0", "web-1")
PATH = "/metadata/scheduledevents?api-version=2020-07-01"
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)

Events = Sequence[tuple[str, str, tuple[str, ...]]]
"""Id, status and resources of each event of a document."""


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
    stalls: Sequence[Stall] = (),
    kinds: Mapping[str, EventKind] | None = None,
    one_shot_runs: int | None = None,
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
        stalls=stalls,
        kinds=kinds,
        one_shot_runs=one_shot_runs,
    )


def looks(begin: float, *events: tuple[str, str, tuple[str, ...]]) -> tuple[Observed, ...]:
    """Return as many polls as a handler needs to be judged."""
    return tuple(ask(begin + number / 10, *events) for number in range(ENOUGH_LOOKS))


SCHEDULED, STARTED = ("A", "Scheduled", OWN), ("A", "Started", OWN)
OTHERS, SHARED = ("A", "Scheduled", OTHER), ("A", "Scheduled", BOTH)
EVERY_SECOND = tuple(ask(float(second)) for second in range(1, 11))
EVERY_MOMENT = tuple(ask(moment / 50) for moment in range(1, 50))
DEAD = ProcessExit(1, 2.0)
KEPT, WARNED, BROKEN, OPEN = Verdict.KEPT, Verdict.WARNING, Verdict.BROKEN, Verdict.NOT_JUDGED
