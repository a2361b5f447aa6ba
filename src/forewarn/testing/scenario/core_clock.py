"""Simulated clock and automatic platform of the core backend: advance from change to change."""

from datetime import datetime, timedelta

import msgspec

from forewarn.clock import ManualClock
from forewarn.core import impact_lifecycle
from forewarn.core.errors import CoreError
from forewarn.core.impact import Done
from forewarn.core.lifecycle import wake_at
from forewarn.platform.port import Work
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.testing.scenario.core_campaigns import CoreCampaigns
from forewarn.testing.scenario.core_state import CoreState


class SimulatedWork(msgspec.Struct, frozen=True):
    """Work in progress, and the time at which it is done."""

    work: Work
    done_at: datetime


class CorePlatform:
    """The simulated platform for the core: it does the same work in the same time as in a service."""

    def __init__(self, state: CoreState, lasting: timedelta | None) -> None:
        self._state = state
        self._lasting = lasting
        self._in_flight: list[SimulatedWork] = []
        self._hosts: set[str] = set()
        speed = state.context.policy.speed
        self._simulated = SimulatedPlatform(ManualClock(state.now), hosts=lambda: tuple(self._hosts), speed=speed)

    def begin(self) -> None:
        """Begin all work that can begin now."""
        self._update_hosts()
        for scope in tuple(self._state.scopes):
            for event, impact in self._state.work_of(scope):
                self._state.apply(
                    scope,
                    lambda value, event=event, vm=impact.vm: impact_lifecycle.begin(
                        value, event.id, vm, now=self._state.now
                    ),  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
                )
                begun = self._state.platform_work(scope, event.id, impact.vm)
                self._in_flight.append(SimulatedWork(begun, self._state.now + self._time_for(begun)))

    def next_moment(self) -> datetime | None:
        """Return the time at which the next work is done."""
        return min((work.done_at for work in self._in_flight), default=None)

    def finish(self) -> None:
        """Finish the work that is done by now; work on removed VMs, events or scopes is dropped."""
        due = [work for work in self._in_flight if work.done_at <= self._state.now]
        self._in_flight = [work for work in self._in_flight if work not in due]
        for begun in due:
            self._finish(begun.work)

    def _finish(self, finished: Work) -> None:
        if finished.scope not in self._state.scopes:
            return
        context, now = self._state.context, self._state.now
        outcome = Done(self._simulated.new_host(finished))
        try:
            self._state.apply(
                finished.scope,
                lambda scope: impact_lifecycle.settle(scope, finished.event, finished.vm, outcome, context, now=now),
            )
        except CoreError:
            return

    def _time_for(self, begun: Work) -> timedelta:
        return self._simulated.duration_for(begun) if self._lasting is None else self._lasting

    def _update_hosts(self) -> None:
        """Add all hosts of VMs; a host that has become empty remains a target for redeploys."""
        vms = (vm for scope in self._state.scopes.values() for vm in scope.roster)
        self._hosts.update(vm.host for vm in vms if vm.host is not None)


class SimulatedClock:
    """Advances the simulated time; everything that becomes due happens in order, at its time."""

    def __init__(self, state: CoreState, campaigns: CoreCampaigns) -> None:
        self._state = state
        self._campaigns = campaigns
        self._platform: CorePlatform | None = None

    @property
    def is_automatic(self) -> bool:
        """Whether the platform carries out its work automatically."""
        return self._platform is not None

    def use_automatic_platform(self, lasting: timedelta | None) -> None:
        """Let the platform carry out its work automatically from now on."""
        self._platform = CorePlatform(self._state, lasting)

    def begin_work(self) -> None:
        """Run campaigns, and let the platform begin all possible work."""
        self._campaigns.run()
        if self._platform is not None:
            self._platform.begin()

    def advance_to(self, limit: datetime) -> None:
        """Let time pass up to the limit."""
        while self.advance(limit):
            pass

    def advance(self, limit: datetime) -> bool:
        """Let time pass up to the next change, at most to the limit; return False if the limit was reached."""
        moment = self._next_moment()
        if moment is None or moment > limit:
            self._state.now = max(self._state.now, limit)
            return False
        self._state.now = moment
        self._state.tick()
        if self._platform is not None:
            self._platform.finish()
        self.begin_work()
        self._state.tell()
        return True

    def _next_moment(self) -> datetime | None:
        """Return the next time, after now, at which something changes."""
        state = self._state
        moments = [
            wake_at(scope, state.context, now=state.now, seen_at=state.seen_at.get(id_))
            for id_, scope in state.scopes.items()
        ]
        moments.append(self._campaigns.next_moment())
        if self._platform is not None:
            moments.append(self._platform.next_moment())
        return min((moment for moment in moments if moment is not None and moment > state.now), default=None)
