"""Everything that is measured, in the order of the table."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.finding import Finding
from bench.measurements import (
    agent,
    approvals,
    callers,
    first_answer,
    fixtures,
    imports,
    lateness,
    memory,
    neighbours,
    plan,
    saves,
    startup,
    throughput,
    waits,
)
from bench.workplace import Workplace


class Measurement(NamedTuple):
    """One row of the table, measured in earnest or only to see that it works."""

    full: Callable[[Workplace], Finding]
    quick: Callable[[Workplace], Finding]


MEASUREMENTS: dict[str, Measurement] = {
    "throughput": Measurement(throughput.measure, partial(throughput.measure, size=throughput.QUICK)),
    "callers": Measurement(callers.measure, partial(callers.measure, size=callers.QUICK)),
    "memory": Measurement(memory.measure, partial(memory.measure, size=memory.QUICK)),
    "startup": Measurement(startup.measure, partial(startup.measure, size=startup.QUICK)),
    "first-answer": Measurement(first_answer.measure, partial(first_answer.measure, size=first_answer.QUICK)),
    "saves": Measurement(saves.measure, partial(saves.measure, size=saves.QUICK)),
    "approvals": Measurement(approvals.measure, partial(approvals.measure, size=approvals.QUICK)),
    "lateness": Measurement(lateness.measure, partial(lateness.measure, size=lateness.QUICK)),
    "neighbours": Measurement(neighbours.measure, partial(neighbours.measure, size=neighbours.QUICK)),
    "waits": Measurement(waits.measure, partial(waits.measure, size=waits.QUICK)),
    "plan": Measurement(plan.measure, partial(plan.measure, size=plan.QUICK)),
    "imports": Measurement(imports.measure, partial(imports.measure, size=imports.QUICK)),
    "fixture": Measurement(fixtures.measure_start, partial(fixtures.measure_start, size=fixtures.QUICK)),
    "advance": Measurement(fixtures.measure_advance, partial(fixtures.measure_advance, size=fixtures.QUICK)),
    "agent": Measurement(agent.measure, partial(agent.measure, size=agent.QUICK)),
}
