"""Whatever the disk does, the outcome that the service reports is the one that a restart finds.

A library that is preloaded into `forewarn serve` lets a write, sync or truncation of the database fail, or kills the
service there; afterwards the service is killed in any case.
"""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.faulty_service import OPERATIONS, FaultLab, run_forker
from tests.support.faulty_disk import FOR_EVER, Fault, FaultPlan

pytestmark = pytest.mark.process

PLANS: dict[str, Callable[[int], FaultPlan]] = {
    "refused once": lambda call: FaultPlan(Fault.REFUSED, errno.EIO, call, call),
    "half done once": lambda call: FaultPlan(Fault.HALF_DONE, errno.ENOSPC, call, call),
    "done but failed once": lambda call: FaultPlan(Fault.DONE_BUT_FAILED, errno.EIO, call, call),
    "refused for ever": lambda call: FaultPlan(Fault.REFUSED, errno.ENOSPC, call, FOR_EVER),
    "done but failed for ever": lambda call: FaultPlan(Fault.DONE_BUT_FAILED, errno.EIO, call, FOR_EVER),
    "killed before": lambda call: FaultPlan(Fault.KILLED_BEFORE, 0, call, call),
    "killed after": lambda call: FaultPlan(Fault.KILLED_AFTER, 0, call, call),
}

WORKERS = 2


def test_reported_outcome_is_the_saved_one_when_the_last_sync_fails(tmp_path: Path) -> None:
    """The transaction is complete in the log, so recovery would find it."""
    with run_forker(tmp_path / "forker") as forker:
        for name in ("schedule", "approval", "hold", "import", "campaign step"):
            lab = FaultLab(forker, tmp_path / name, OPERATIONS[name])
            sync = lab.count_calls()
            for plan in ("refused once", "refused for ever"):
                lab.check(PLANS[plan](sync))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_reported_outcome_is_the_saved_one_at_every_call(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        forkers = [stack.enter_context(run_forker(tmp_path / f"forker-{n}")) for n in range(WORKERS)]
        labs = [FaultLab(forker, tmp_path / f"lab-{n}", OPERATIONS[name]) for n, forker in enumerate(forkers)]
        calls = max(lab.count_calls() for lab in labs)
        plans = [plan(call) for plan in PLANS.values() for call in range(1, calls + 1)]

        def check(number: int) -> None:
            for plan in plans[number::WORKERS]:
                labs[number].check(plan)

        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(check, range(WORKERS)))
