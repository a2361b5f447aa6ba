"""The pure core as a stage: stories take place in memory, in no time. Nothing happens that they do not say.

With `platform automatic` a story leaves that to time and to the platform, as in a service.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import singledispatch
from typing import TypeVar

import msgspec

from forewarn.api.fleet_file import CreationContext, demonstration_fleet
from forewarn.core import impact_lifecycle, inventory, operations
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.enablement import mark_seen, needs_save
from forewarn.core.errors import CoreError, ResourceExists
from forewarn.core.event import Source
from forewarn.core.explain import blocker_messages, explain
from forewarn.core.fault import Fault
from forewarn.core.impact import Done, Failed, ImpactOutcome, Retry, Unknown
from forewarn.core.lifecycle import wake_at
from forewarn.core.limits import DIGEST_LENGTH
from forewarn.core.policy import Outage
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import Hold, Scope
from forewarn.core.vm import Priority, Traits, Vm
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.describing import FAULTS_CLEARED, described_document, described_scope, fault_told
from forewarn.testing.scenario.expecting import agree
from forewarn.testing.scenario.hearing import Heard
from forewarn.testing.scenario.passing import Passing
from forewarn.testing.scenario.policies import changed
from forewarn.testing.scenario.stage import REFUSED, Told, Unplayable
from forewarn.testing.scenario.world import World, guid

R = TypeVar("R")

PLATFORM = "platform"


class CoreStage:
    """Plays stories on the pure core. `world` is what has become of it."""

    def __init__(self) -> None:
        self.world = World()
        self._passing = Passing(self.world)
        self._heard = Heard()

    def agrees(self, told: Sequence[str], expected: Sequence[str]) -> bool:
        """Tell whether exactly this was expected: nothing here is left to chance."""
        return agree(told, expected)

    def longest_wait(self, command: say.Command, at: timedelta | None) -> timedelta:  # noqa: ARG002 - the same for all
        """Return no time: days pass at once here."""
        return timedelta(0)

    def perform(self, command: say.Command, at: timedelta | None) -> Told:
        """Do what the command says, and tell what followed."""
        self.world.facts = []
        if at is not None:
            self._set_clock(at)
        if isinstance(command, say.Expect):
            self._heard.add(self.world.facts)
            return self._heard.expect(command, self._pass_on, limit=self.world.now + command.within)
        told = Told(tuple(self._tell(command)))
        self._heard.begin(told.facts)
        return told

    def _tell(self, command: say.Command) -> list[str]:
        world = self.world
        try:
            self._act(command)
        except CoreError as refusal:
            return [*world.facts, f"{REFUSED}{refusal.code}: {world.names.plain(str(refusal))}"]
        self._passing.settle()
        if not self._passing.is_automatic:
            world.tell_new_work()
        return world.facts

    def _act(self, command: say.Command) -> None:
        match command:
            case say.UsePlatform():
                self._passing.automate(command.lasting)
            case say.Wait():
                self._passing.pass_until(self.world.now + command.time)
            case say.Tick(time=timedelta() as time) if self._passing.is_automatic:
                self._set_clock(time)
            case _:
                act(command, self.world)

    def _set_clock(self, time: timedelta) -> None:
        """Make it that time: as time passes, or at one stroke, forwards or back."""
        if self._passing.is_automatic:
            self._pass_until(self.world.names.moment(time))
        else:
            self.world.set_clock(time)

    def _pass_until(self, moment: datetime) -> None:
        if moment < self.world.now:
            now = self.world.names.time(self.world.now)
            raise Unplayable(f"it is {now} by then, and time that passes by itself does not go back", "at")
        self._passing.pass_until(moment)

    def _pass_on(self, limit: datetime) -> list[str] | None:
        self.world.facts = []
        has_changed = self._passing.pass_on(limit)
        if not self._passing.is_automatic:
            self.world.tell_new_work()
        return self.world.facts if has_changed else None


@singledispatch
def act(command: say.Said, _world: World) -> None:
    """Do what a command says: one function for each."""
    raise TypeError(f"{type(command).__name__} is not for this stage")


@act.register
def _(command: say.SetPolicy, world: World) -> None:
    policy = changed(world.conditions.policy, command)
    world.conditions = msgspec.structs.replace(world.conditions, policy=policy)


@act.register
def _(_: say.UseFleet, world: World) -> None:
    """There is one fleet with a name: the one that comes with Forewarn."""
    for scope in demonstration_fleet(CreationContext(at=world.now, new_epoch=world.new_epoch)):
        if scope.id in world.scopes:
            raise ResourceExists(f"scope {scope.id}")
        world.keep(scope.id, Change(scope, (), None))


@act.register
def _(command: say.Handler, world: World) -> None:
    """Nobody is examined here: the story plays the VM's part itself."""
    world.find(command.vm)


@act.register
def _(command: say.AddScope, world: World) -> None:
    if command.scope in world.scopes:
        raise ResourceExists(f"scope {command.scope}")
    scope = Scope(
        id=command.scope,
        kind=command.kind,
        epoch=world.new_epoch(),
        changed_at=world.now,
        traits=_traits(Traits(), command.priority, command.terminate_notice),
        approval=command.approval,
        auto_approve=command.auto_approve,
    )
    world.keep(scope.id, inventory.create_scope(scope, by=say.OPERATOR, now=world.now))


@act.register
def _(command: say.ChangeScope, world: World) -> None:
    scope = world.scope(command.scope)
    traits = _traits(world.scopes[scope].traits, command.priority, command.terminate_notice)
    world.apply(
        scope,
        lambda value: inventory.change_scope(
            value,
            world.conditions,
            by=say.OPERATOR,
            now=world.now,
            traits=traits,
            approval=command.approval,
            auto_approve=command.auto_approve,
        ),
    )


@act.register
def _(command: say.RemoveScope, world: World) -> None:
    world.apply(
        world.scope(command.scope),
        lambda scope: inventory.remove_scope(scope, by=command.by, now=world.now, why=command.why, force=command.force),
    )


@act.register
def _(command: say.AddVms, world: World) -> None:
    scope = world.scope(command.scope) if command.scope is not None else world.newest_scope()
    for name in command.names:
        vm = Vm(
            name=name,
            vm_id=guid("vm", scope, name),
            update_domain=command.domain,
            host=command.host,
            traits=_traits(Traits(), command.priority, command.terminate_notice),
        )
        world.apply(scope, lambda value, vm=vm: inventory.add_vm(value, vm, by=say.OPERATOR, now=world.now))  # type: ignore[misc]  # mypy cannot infer a lambda with a default


@act.register
def _(command: say.ChangeVm, world: World) -> None:
    scope, name = world.find(command.vm)
    old = world.scopes[scope].vm(name)
    changed = msgspec.structs.replace(
        old,
        update_domain=old.update_domain if command.domain is None else command.domain,
        host=old.host if command.host is msgspec.UNSET else command.host,
        traits=_traits(old.traits, command.priority, command.terminate_notice),
    )
    world.apply(
        scope,
        lambda value: inventory.change_vm(value, changed, world.conditions, by=command.by, now=world.now),
    )


@act.register
def _(command: say.RemoveVm, world: World) -> None:
    scope, name = world.find(command.vm)
    world.apply(
        scope,
        lambda value: inventory.remove_vm(
            value, name, world.conditions, by=command.by, now=world.now, why=command.why, force=command.force
        ),
    )


def _traits(base: Traits, priority: Priority | None, terminate_notice: timedelta | None) -> Traits:
    return Traits(priority=priority, terminate_notice=terminate_notice).with_defaults(base)


@act.register
def _(command: say.Tick, world: World) -> None:
    if command.time is not None:
        world.set_clock(command.time)
    world.tick()


@act.register
def _(command: say.Outage, world: World) -> None:
    """Whatever lived in memory only is lost."""
    began_at, world.now = world.now, world.now + command.time
    outage = Outage(began_at=began_at, ended_at=world.now)
    world.conditions = msgspec.structs.replace(world.conditions, outages=(*world.conditions.outages, outage))
    world.seen_at = {}


@act.register
def _(command: say.Query, world: World) -> None:
    """As a service does it: every request counts, few are saved."""
    scope, _ = world.find(command.vm)
    world.seen_at[scope] = world.now
    if needs_save(world.scopes[scope], now=world.now):
        world.apply(scope, lambda value: mark_seen(value, now=world.now, epoch=world.new_epoch()))


@act.register
def _(command: say.Approve, world: World) -> None:
    scope, vm = world.find(command.vm)
    ids = [world.event(event) for event in command.events]
    world.apply(scope, lambda value: approve(value, vm, ids, world.conditions, now=world.now, by=command.through))


@act.register
def _(command: say.Schedule, world: World) -> None:
    not_before = None if command.not_before is None else world.names.moment(command.not_before)
    ask = ScheduleRequest(
        id=world.request(command.request),
        type=command.type,
        vms=command.vms,
        by=command.by,
        source=Source.USER if command.by == say.USER else Source.PLATFORM,
        not_before=not_before,
        notice=command.notice,
        duration=command.duration,
        why=command.why,
        key=command.key,
        campaign=command.campaign,
        digest=guid(repr(msgspec.structs.replace(command, request=None)))[:DIGEST_LENGTH],
    )
    _ask(world, ask)


@act.register
def _(command: say.Restart, world: World) -> None:
    _ask(world, operations.restart(command.vm, request=world.request(command.request), by=say.USER))


@act.register
def _(command: say.Redeploy, world: World) -> None:
    _ask(world, operations.redeploy(command.vm, request=world.request(command.request), by=say.USER))


@act.register
def _(command: say.Evict, world: World) -> None:
    request = world.request(command.request)
    _ask(world, operations.evict(command.vm, request=request, by=PLATFORM, notice=command.notice))


@act.register
def _(command: say.Fail, world: World) -> None:
    request = world.request(command.request)
    _ask(world, operations.fail(command.vms, request=request, by=PLATFORM, kind=command.type))


@act.register
def _(command: say.Predict, world: World) -> None:
    request = world.request(command.request)
    _ask(world, operations.predict_failure(command.vms, request=request, by=PLATFORM, ahead=command.ahead))


def _ask(world: World, ask: ScheduleRequest) -> None:
    """Make the events of a request in all scopes of its VMs, or in none."""
    found = [world.find(name) for name in ask.vms]
    asks: dict[str, ScheduleRequest] = {}
    for scope in dict.fromkeys(scope for scope, _ in found):
        asks[scope] = msgspec.structs.replace(ask, vms=tuple(vm for home, vm in found if home == scope))
    rules = {scope: _scheduling(world, part) for scope, part in asks.items()}
    made = world.apply_all(rules, named=[vm for _, vm in found])
    if not world.facts:
        world.facts += [f"{world.names.label(event)} is known" for events in made.values() for event in events]


def _scheduling(world: World, ask: ScheduleRequest) -> Callable[[Scope], Change[tuple[str, ...]]]:
    return lambda scope: schedule(scope, ask, world.conditions, now=world.now)


@act.register
def _(command: say.Delete, world: World) -> None:
    scope, vm = world.find(command.vm)
    request = world.request(command.request)
    world.apply(
        scope,
        lambda value: operations.delete(value, vm, world.conditions, request=request, by=say.USER, now=world.now),
        named=[vm],
    )


@act.register
def _(command: say.Cancel, world: World) -> None:
    event = world.event(command.event)
    world.apply(
        world.home(event),
        lambda scope: operations.cancel(scope, event, world.conditions, by=command.by, now=world.now, why=command.why),
    )


@act.register
def _(command: say.Clear, world: World) -> None:
    event = world.event(command.event)
    world.apply(world.home(event), lambda scope: operations.clear(scope, (event,), world.conditions, now=world.now))


@act.register
def _(command: say.Hold, world: World) -> None:
    if command.what == say.EVERYTHING:
        held = Hold(by=command.by, at=world.now, reason=command.reason)
        world.conditions = msgspec.structs.replace(world.conditions, hold=held)
        world.facts.append(f"everything held by {command.by} ({command.reason})")
        return
    world.apply(
        world.scope(command.what),
        lambda scope: operations.hold(scope, by=command.by, reason=command.reason, now=world.now),
    )


@act.register
def _(command: say.Release, world: World) -> None:
    if command.what == say.EVERYTHING:
        world.conditions = msgspec.structs.replace(world.conditions, hold=None)
        world.facts.append(f"everything released by {command.by}")
        world.tick()
        return
    world.apply(
        world.scope(command.what),
        lambda scope: operations.release(scope, world.conditions, by=command.by, now=world.now, why=command.why),
    )


@act.register
def _(command: say.Begin, world: World) -> None:
    _on_impacts(
        world,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.begin(scope, event, vm, now=world.now, again=command.again),
    )


@act.register
def _(command: say.Done, world: World) -> None:
    _settle(world, command.event, command.vms, Done(command.host))


@act.register
def _(command: say.Failed, world: World) -> None:
    _settle(world, command.event, command.vms, Failed(command.why))


@act.register
def _(command: say.Later, world: World) -> None:
    _settle(world, command.event, command.vms, Retry(command.after, command.why))


@act.register
def _(command: say.Unknown, world: World) -> None:
    _settle(world, command.event, command.vms, Unknown(command.why))


@act.register
def _(command: say.Retry, world: World) -> None:
    _on_impacts(
        world,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.retry(
            scope, event, vm, by=command.by, now=world.now, why=command.why
        ),
    )


@act.register
def _(command: say.Resolve, world: World) -> None:
    event = world.event(command.event)
    world.apply(
        world.home(event),
        lambda scope: impact_lifecycle.resolve(
            scope,
            event,
            world.conditions,
            by=command.by,
            why=command.why,
            now=world.now,
            done=command.done,
            vm=command.vm,
        ),
    )


def _settle(world: World, name: str, vms: tuple[str, ...], outcome: ImpactOutcome) -> None:
    _on_impacts(
        world,
        name,
        vms,
        lambda scope, event, vm: impact_lifecycle.settle(scope, event, vm, outcome, world.conditions, now=world.now),
    )


def _on_impacts(world: World, name: str, vms: tuple[str, ...], rule: Callable[[Scope, str, str], Change[R]]) -> None:
    """Apply a rule to an event's work on each of these VMs in turn; without names, on all of the event's."""
    event = world.event(name)
    home = world.home(event)
    for vm in vms or world.scopes[home].event(event).vms:
        world.apply(home, lambda scope: rule(scope, event, vm))  # noqa: B023 - applied at once


@act.register
def _(command: say.SetFault, world: World) -> None:
    """Tell of it: the core has no endpoint that could misbehave."""
    vm = None if command.vm is None else "/".join(world.find(command.vm))
    until = None if command.lasting is None else world.now + command.lasting
    Fault(
        id=guid("fault"),
        kind=command.kind,
        vm=vm,
        until=until,
        times=command.times,
        amount=command.amount,
        by=say.OPERATOR,
        set_at=world.now,
    )
    world.facts.append(fault_told(command))


@act.register
def _(_: say.ClearFaults, world: World) -> None:
    world.facts.append(FAULTS_CLEARED)


@act.register
def _(command: say.Explain, world: World) -> None:
    scope = world.scopes[world.home(world.event(command.event))]
    holds = explain(scope, scope.event(world.event(command.event)), world.conditions, now=world.now)
    world.facts += [world.names.plain(sentence) for sentence in blocker_messages(holds)]


@act.register
def _(command: say.Document, world: World) -> None:
    scope, _ = world.find(command.vm)
    world.facts += described_document(world.scopes[scope], world.names)


@act.register
def _(command: say.State, world: World) -> None:
    world.facts += described_scope(world.scopes[world.scope(command.scope)], world.names)


@act.register
def _(command: say.Wake, world: World) -> None:
    scope = world.scope(command.scope)
    moment = wake_at(world.scopes[scope], world.conditions, seen_at=world.seen_at.get(scope))
    world.facts.append("never" if moment is None else world.names.time(moment))
