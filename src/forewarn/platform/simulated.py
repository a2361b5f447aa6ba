"""Simulated platform: work only takes time, on the service's clock."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from forewarn.clock import Clock, wait_until
from forewarn.core.campaign.spec import HttpCheck
from forewarn.core.duration import at_speed
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Failed, NotStarted, Retry, Unknown
from forewarn.platform.port import GateFailed, GatePassed, GateRequest, Work, missing_gate

MAX_RESULTS = 10_000
"""How many results, the newest ones, are kept."""


class WorkResult(msgspec.Struct, frozen=True):
    """The outcome of one piece of work."""

    work: Work
    outcome: Done | Failed | Retry


class SimulatedGateChecker:
    """Answers for gates without running or calling anything: all are open, except those that are given as closed."""

    def __init__(self, gates: Sequence[str], closed: Collection[str] = ()) -> None:
        self.gates: Sequence[str] = tuple(gates)
        self._closed = frozenset(closed)

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Return the simulated result; a gate that the settings do not have fails, as it would in production."""
        if isinstance(request.gate, HttpCheck):
            return GatePassed()
        if request.gate not in self.gates:
            return missing_gate(request.gate)
        return GateFailed("closed in this rehearsal") if request.gate in self._closed else GatePassed()


class SimulatedPlatform:
    """Work takes as long as configured for its type (Freeze: as the event's duration) and succeeds by default."""

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

    def use_speed(self, speed: float) -> None:
        """Take this speed for work that begins from now on."""
        self._speed = speed

    def set_outcomes(self, vm: str, *outcomes: Failed | Retry) -> None:
        """Set the outcomes of the next pieces of work on `scope/vm`, one each."""
        self._planned_outcomes.setdefault(vm, []).extend(outcomes)

    async def carry_out(self, work: Work) -> Done | Failed | Retry:
        """Wait as long as the work takes, and return its outcome."""
        await wait_until(self._clock, self._clock.now() + self.duration_for(work))
        planned = self._planned_outcomes.get(f"{work.scope}/{work.vm}")
        outcome = planned.pop(0) if planned else Done(host=self.new_host(work))
        self.results.append(WorkResult(work, outcome))
        return outcome

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        """Return the kept result, or NotStarted, because a simulation does not outlive its process."""
        done = (ran.outcome for ran in self.results if ran.work.id == work.id and isinstance(ran.outcome, Done))
        return next(done, NotStarted())

    def duration_for(self, work: Work) -> timedelta:
        """Return how long the work takes. The event's own duration was divided by the speed when it was created."""
        if EVENT_TYPES[work.type].simulates_duration and work.duration is not None:
            return work.duration
        return at_speed(self._durations[work.type], self._speed)

    def new_host(self, work: Work) -> str | None:
        """Return the VM's host afterwards: a redeployed VM moves to the next host of the fleet after its own."""
        if not EVENT_TYPES[work.type].moves_vm:
            return None
        hosts = sorted(set(self._hosts()))
        others = [host for host in hosts if host > (work.host or "")] + hosts
        return next((host for host in others if host != work.host), work.host)
