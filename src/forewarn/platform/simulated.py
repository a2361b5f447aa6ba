"""Simulated platform: each kind of work only takes its time, on the service's own clock."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from forewarn.clock import Clock, wait_until
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Failed, NotStarted, Retry, Unknown
from forewarn.platform.port import Work

MAX_RESULTS = 10_000
"""How many results are kept, the newest."""


class WorkResult(msgspec.Struct, frozen=True):
    """How a piece of work ended."""

    work: Work
    outcome: Done | Failed | Retry


class SimulatedPlatform:
    """Work lasts as long as its kind does (Freeze: as long as the event says) and succeeds, unless told otherwise."""

    repeatable = True

    def __init__(
        self,
        clock: Clock,
        *,
        hosts: Callable[[], Sequence[str]] = lambda: (),
        durations: Mapping[EventType, timedelta] | None = None,
        speed: float = 1.0,
    ) -> None:
        self._clock = clock
        self._hosts = hosts
        self._durations = {type_: spec.default_duration for type_, spec in EVENT_TYPES.items()} | dict(durations or {})
        self._speed = speed
        self._planned_outcomes: dict[str, list[Failed | Retry]] = {}
        self.results: deque[WorkResult] = deque(maxlen=MAX_RESULTS)

    def set_outcomes(self, vm: str, *outcomes: Failed | Retry) -> None:
        """Let the next pieces of work on `scope/vm` end like this, one each."""
        self._planned_outcomes.setdefault(vm, []).extend(outcomes)

    async def carry_out(self, work: Work) -> Done | Failed | Retry:
        """Let the time pass, and say how it went."""
        await wait_until(self._clock, self._clock.now() + self.duration_for(work))
        planned = self._planned_outcomes.get(f"{work.scope}/{work.vm}")
        outcome = planned.pop(0) if planned else Done(host=self.new_host(work))
        self.results.append(WorkResult(work, outcome))
        return outcome

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        """Nothing of a simulation outlives its process: work without a kept result has not started."""
        done = (ran.outcome for ran in self.results if ran.work.id == work.id and isinstance(ran.outcome, Done))
        return next(done, NotStarted())

    def duration_for(self, work: Work) -> timedelta:
        """Return how long the work takes. An event's own duration was divided by the speed when it was made."""
        if EVENT_TYPES[work.type].simulates_duration and work.duration is not None:
            return work.duration
        return self._durations[work.type] / self._speed

    def new_host(self, work: Work) -> str | None:
        """Choose where the VM is afterwards: to be redeployed, it moves to the next host of the fleet after its own."""
        if not EVENT_TYPES[work.type].moves_vm:
            return None
        hosts = sorted(set(self._hosts()))
        others = [host for host in hosts if host > (work.host or "")] + hosts
        return next((host for host in others if host != work.host), work.host)
