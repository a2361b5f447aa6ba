"""Impact execution: save that an impact begins, pass it to the platform, save the outcome. Always in this order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Protocol

from forewarn.core.errors import CoreError
from forewarn.core.impact import Done, Failed, Impact, ImpactOutcome, ImpactState, NotStarted, Unknown
from forewarn.core.impact_lifecycle import impacts_to_begin
from forewarn.fleet.duty import DutyWork
from forewarn.fleet.errors import FleetError
from forewarn.fleet.impact_writer import ImpactWriter, ScopeImpactWriter, describe_work
from forewarn.fleet.main_loop import MainLoop
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.retry import repeat_until_saved
from forewarn.fleet.scopes import ScopeChange, Scopes
from forewarn.platform.port import Platform, Work

log = logging.getLogger(__name__)

WORK_TIMEOUT = PROBE_TIMEOUT = 25 * 3600.0
"""How long, in seconds of real time, a platform may take before its work counts as unknown. A probe after a crash may
have to wait for work that is still running."""

MAX_CONCURRENT = 16
"""How many impacts are saved as begun at the same time."""

MAX_BEGIN_DELAY = 1.0
"""How long, in seconds, impacts wait for due events to start. When a thousand events start in one second, waiting
guests are notified first; work that begins slightly later is not late."""


REFUSED_PAUSE = 0.25
"""How long, in seconds, to wait after a refusal before the scope is looked at again: a host hears of the change that
caused the refusal a little later than the control node that refused."""


class StartQueue(Protocol):
    """The due events, which start before impacts begin."""

    @property
    def is_idle(self) -> bool:
        """Whether every due event has started."""
        ...

    async def wait_idle(self) -> None:
        """Return when `is_idle`."""
        ...


class Impacts:
    """The duty to carry out impacts, one task each: those of all VMs, or of the VMs on some hosts.

    Without `due_events`, another process starts the events.
    """

    def __init__(
        self,
        platform: Platform,
        scopes: Scopes,
        main_loop: MainLoop,
        due_events: StartQueue | None = None,
        writer: ImpactWriter | None = None,
    ) -> None:
        self._platform = platform
        self._scopes = scopes
        self._due_events = due_events
        self._writer = writer or ScopeImpactWriter(scopes)
        self._tasks = DutyWork(main_loop)
        self._in_flight: set[tuple[str, str]] = set()
        self._to_begin: deque[tuple[ScopeView, str, str]] = deque()
        """Impacts in flight that have no task yet, with event and VM."""
        self._begin_slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._is_running = False
        self._hosts: frozenset[str] | None = None

    @property
    def busy(self) -> int:
        """How many impacts have no task yet; the others wait for the clock, or for a save, which counts itself."""
        return len(self._to_begin)

    @property
    def waiting(self) -> int:
        """How many impacts are being carried out."""
        return len(self._in_flight)

    async def start(self, hosts: Collection[str] | None = None) -> None:
        """Start the duty, for the VMs on these hosts or for all; probe impacts that other processes had begun."""
        self._is_running = True
        self._hosts = None if hosts is None else frozenset(hosts)
        for view in self._scopes.replica.views():
            self._evaluate(view)

    def halt(self) -> None:
        """Cancel all tasks and begin no further impacts, at once."""
        self._is_running = False
        self._to_begin.clear()
        self._tasks.halt()

    async def stop(self) -> None:
        """Stop the duty. Begun work continues at the platform; the next process with the duty probes it."""
        self.halt()
        await self._tasks.stop()
        self._in_flight.clear()

    def observe(self, change: ScopeChange) -> None:
        """Begin the pending impacts of a changed scope."""
        if self._is_running and change.after is not None and change.after.events:
            self._evaluate(self._scopes.replica.get_or_create_view(change.id))

    def _evaluate(self, view: ScopeView) -> None:
        """Begin the pending impacts of the scope, and probe impacts that had begun before this process."""
        scope = view.scope
        if not self._is_running or scope is None or not scope.events:
            return
        for event, impact in impacts_to_begin(scope, now=self._scopes.clock.now()):
            if not self._claim(view, event.id, impact.vm):
                continue
            if (self._due_events is None or self._due_events.is_idle) and not self._to_begin:
                self._start(view, event.id, impact.vm, self._begin_and_carry_out)
                continue
            self._to_begin.append((view, event.id, impact.vm))
            if len(self._to_begin) == 1:
                self._tasks.create(self._start_queued(), name="begin impacts")
        for event in scope.events:
            for impact in event.impacts:
                if impact.state is ImpactState.BEGUN and self._claim(view, event.id, impact.vm, impact.host):
                    self._start(view, event.id, impact.vm, self._recover)

    def _claim(self, view: ScopeView, event: str, vm: str, begun_by: str | None = None) -> bool:
        """Return whether this process is to carry out the impact, and does not do so yet."""
        if (event, vm) in self._in_flight or not self._is_ours(view, vm, begun_by):
            return False
        self._in_flight.add((event, vm))
        return True

    def _is_ours(self, view: ScopeView, vm: str, begun_by: str | None) -> bool:
        """Return whether this process carries out impacts on the VM's host, or on the host that has begun this one."""
        if self._hosts is None:
            return True
        if begun_by is not None:
            return begun_by in self._hosts
        found = view.roster.find(vm) if view.roster is not None else None
        return found is not None and found.host in self._hosts

    async def _start_queued(self) -> None:
        """Start the tasks of queued impacts after the due events: creating a thousand tasks would delay those."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_BEGIN_DELAY):
                if self._due_events is not None:
                    await self._due_events.wait_idle()
        fair_share = self._scopes.new_fair_share()
        while self._to_begin:
            await fair_share.wait_turn()
            self._start(*self._to_begin.popleft(), self._begin_and_carry_out)

    def _start(self, view: ScopeView, event: str, vm: str, work: Callable[[str, str, str], Awaitable[None]]) -> None:
        self._tasks.create(self._run(view, event, vm, work), name=f"{event} {view.id}/{vm}")

    async def _run(
        self, view: ScopeView, event: str, vm: str, work: Callable[[str, str, str], Awaitable[None]]
    ) -> None:
        try:
            await work(view.id, event, vm)
        except (CoreError, FleetError) as error:
            log.info("event %s on %s/%s needs no more work: %s", event, view.id, vm, error)
            if self._hosts is not None:
                await asyncio.sleep(REFUSED_PAUSE)
        finally:
            self._in_flight.discard((event, vm))
        self._evaluate(view)

    async def _begin_and_carry_out(self, scope: str, event: str, vm: str, *, again: bool = False) -> None:
        async with self._begin_slots:
            impact = self._scopes.replica.scope(scope).event(event).impact(vm) or Impact(vm=vm)
            attempt = impact.attempt + 1
            work = await repeat_until_saved(
                f"save that event {event} begins on {scope}/{vm}",
                lambda: self._writer.begin(scope, event, vm, attempt=attempt, again=again),
            )
        await self._settle(work, await self._carry_out(work))

    async def _recover(self, scope: str, event: str, vm: str) -> None:
        """Probe an impact that had begun when a process ended."""
        work = describe_work(self._scopes.replica.scope(scope), event, vm)
        match await self._probe(work):
            case Done() as done:
                await self._settle(work, done)
            case NotStarted():
                await self._begin_and_carry_out(scope, event, vm, again=True)
            case Unknown() if self._platform.repeatable:
                await self._begin_and_carry_out(scope, event, vm, again=True)
            case Unknown() as unknown:
                await self._settle(work, unknown)

    async def _carry_out(self, work: Work) -> ImpactOutcome:
        limit = asyncio.timeout(WORK_TIMEOUT)
        try:
            async with limit:
                return await self._platform.carry_out(work)
        except Exception as error:
            if limit.expired():
                return Unknown(f"no result from the platform for {WORK_TIMEOUT / 3600:.0f} hours")
            log.exception("the platform raised an error while carrying out %s", work.id)
            return Failed(f"internal error of the platform: {error!r}")

    async def _probe(self, work: Work) -> Done | NotStarted | Unknown:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return await self._platform.probe(work)
        except Exception as error:
            log.exception("the platform raised an error while probing %s", work.id)
            return Unknown(f"internal error of the platform in a probe: {error!r}")

    async def _settle(self, work: Work, outcome: ImpactOutcome) -> None:
        await repeat_until_saved(f"save the outcome of {work.id}", lambda: self._writer.settle(work, outcome))
