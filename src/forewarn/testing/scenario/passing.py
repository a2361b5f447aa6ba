"""How time passes on the pure core where the platform does its work by itself: from change to change."""

from datetime import datetime, timedelta

import msgspec

from forewarn.clock import ManualClock
from forewarn.core import impact_lifecycle
from forewarn.core.errors import CoreError
from forewarn.core.impact import Done
from forewarn.core.lifecycle import wake_at
from forewarn.platform.port import Work
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.testing.scenario.world import World


class Labour(msgspec.Struct, frozen=True):
    """A piece of work that is under way, and when it is done."""

    work: Work
    done_at: datetime


class AutomaticPlatform:
    """Does on the core what the simulated platform does in a service: the same work, in the same time."""

    def __init__(self, world: World, lasting: timedelta | None) -> None:
        self._world = world
        self._lasting = lasting
        self._under_way: list[Labour] = []
        self._hosts: set[str] = set()
        speed = world.conditions.policy.speed
        self._simulated = SimulatedPlatform(ManualClock(world.now), hosts=lambda: tuple(self._hosts), speed=speed)

    def begin(self) -> None:
        """Begin all that can be begun now."""
        self._note_hosts()
        for scope in tuple(self._world.scopes):
            for event, impact in self._world.work_of(scope):
                self._world.apply(
                    scope,
                    lambda value, event=event, vm=impact.vm: impact_lifecycle.begin(
                        value, event.id, vm, now=self._world.now
                    ),  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
                )
                labour = self._world.labour(scope, event.id, impact.vm)
                self._under_way.append(Labour(labour, self._world.now + self._time_for(labour)))

    def next_moment(self) -> datetime | None:
        """Return when the next piece of work is done."""
        return min((labour.done_at for labour in self._under_way), default=None)

    def finish(self) -> None:
        """Finish what is done by now; work on what has gone meanwhile comes to nothing."""
        due = [labour for labour in self._under_way if labour.done_at <= self._world.now]
        self._under_way = [labour for labour in self._under_way if labour not in due]
        for labour in due:
            self._finish(labour.work)

    def _finish(self, done: Work) -> None:
        if done.scope not in self._world.scopes:
            return
        conditions, now = self._world.conditions, self._world.now
        outcome = Done(self._simulated.new_host(done))
        try:
            self._world.apply(
                done.scope,
                lambda scope: impact_lifecycle.settle(scope, done.event, done.vm, outcome, conditions, now=now),
            )
        except CoreError:
            return

    def _time_for(self, labour: Work) -> timedelta:
        return self._simulated.duration_for(labour) if self._lasting is None else self._lasting

    def _note_hosts(self) -> None:
        """Take note of every host on which a VM is: one that has become empty is still there to move to."""
        vms = (vm for scope in self._world.scopes.values() for vm in scope.roster)
        self._hosts.update(vm.host for vm in vms if vm.host is not None)


class Passing:
    """Lets time pass in a world: everything that is due on the way happens, in order, at its moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._platform: AutomaticPlatform | None = None

    @property
    def is_automatic(self) -> bool:
        """Whether the platform does its work by itself."""
        return self._platform is not None

    def automate(self, lasting: timedelta | None) -> None:
        """From now on the platform does its work by itself."""
        self._platform = AutomaticPlatform(self._world, lasting)

    def settle(self) -> None:
        """Have the platform begin what it can."""
        if self._platform is not None:
            self._platform.begin()

    def pass_until(self, limit: datetime) -> None:
        """Let time pass up to a moment."""
        while self.pass_on(limit):
            pass

    def pass_on(self, limit: datetime) -> bool:
        """Let time pass up to the next change; at the limit, if there is none before, and say that it has come."""
        moment = self._next_moment()
        if moment is None or moment > limit:
            self._world.now = max(self._world.now, limit)
            return False
        self._world.now = moment
        self._world.tick()
        if self._platform is not None:
            self._platform.finish()
        self.settle()
        return True

    def _next_moment(self) -> datetime | None:
        """Return when something changes next. What was due by now has been dealt with."""
        world = self._world
        moments = [
            wake_at(scope, world.conditions, seen_at=world.seen_at.get(id_)) for id_, scope in world.scopes.items()
        ]
        if self._platform is not None:
            moments.append(self._platform.next_moment())
        return min((moment for moment in moments if moment is not None and moment > world.now), default=None)
