"""Backend that runs scenarios on the pure core, in memory and without real time.

Nothing happens that the scenario does not say, unless `platform automatic` leaves it to time and platform."""

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
from forewarn.testing.scenario.core_clock import SimulatedClock
from forewarn.testing.scenario.core_state import CoreState, guid
from forewarn.testing.scenario.expect import facts_equal
from forewarn.testing.scenario.matcher import ExpectationMatcher
from forewarn.testing.scenario.render import FAULTS_CLEARED, render_document, render_fault, render_scope
from forewarn.testing.scenario.runner import REFUSED, CommandResult, InvalidCommand
from forewarn.testing.scenario.setup import apply_policy

R = TypeVar("R")

PLATFORM = "platform"


class CoreBackend:
    """Plays stories on the pure core. `world` is what has become of it."""

    def __init__(self) -> None:
        self.state = CoreState()
        self._clock = SimulatedClock(self.state)
        self._matcher = ExpectationMatcher()

    def matches(self, facts: Sequence[str], expected: Sequence[str]) -> bool:
        """Tell whether exactly this was expected: nothing here is left to chance."""
        return facts_equal(facts, expected)

    def max_wait(self, command: say.Command, at: timedelta | None) -> timedelta:  # noqa: ARG002 - the same for all
        """Return no time: days pass at once here."""
        return timedelta(0)

    def execute(self, command: say.Command, at: timedelta | None) -> CommandResult:
        """Do what the command says, and tell what followed."""
        self.state.facts = []
        if at is not None:
            self._set_clock(at)
        if isinstance(command, say.Expect):
            self._matcher.add(self.state.facts)
            return self._matcher.expect(command, self._advance, limit=self.state.now + command.within)
        result = CommandResult(tuple(self._facts_of(command)))
        self._matcher.reset(result.facts)
        return result

    def _facts_of(self, command: say.Command) -> list[str]:
        state = self.state
        try:
            self._dispatch(command)
        except CoreError as refusal:
            return [*state.facts, f"{REFUSED}{refusal.code}: {state.names.replace_ids(str(refusal))}"]
        self._clock.begin_work()
        if not self._clock.is_automatic:
            state.report_new_work()
        return state.facts

    def _dispatch(self, command: say.Command) -> None:
        match command:
            case say.UsePlatform():
                self._clock.use_automatic_platform(command.lasting)
            case say.Wait():
                self._clock.advance_to(self.state.now + command.time)
            case say.Tick(time=timedelta() as time) if self._clock.is_automatic:
                self._set_clock(time)
            case _:
                run_command(command, self.state)

    def _set_clock(self, time: timedelta) -> None:
        """Make it that time: as time passes, or at one stroke, forwards or back."""
        if self._clock.is_automatic:
            self._advance_to(self.state.names.moment(time))
        else:
            self.state.set_clock(time)

    def _advance_to(self, moment: datetime) -> None:
        if moment < self.state.now:
            now = self.state.names.time(self.state.now)
            raise InvalidCommand(f"it is {now} by then, and time that passes by itself does not go back", "at")
        self._clock.advance_to(moment)

    def _advance(self, limit: datetime) -> list[str] | None:
        self.state.facts = []
        has_changed = self._clock.advance(limit)
        if not self._clock.is_automatic:
            self.state.report_new_work()
        return self.state.facts if has_changed else None


@singledispatch
def run_command(command: say.BaseCommand, _state: CoreState) -> None:
    """Do what a command says: one function for each."""
    raise TypeError(f"{type(command).__name__} is not for this stage")


@run_command.register
def _(command: say.SetPolicy, world: CoreState) -> None:
    policy = apply_policy(world.context.policy, command)
    world.context = msgspec.structs.replace(world.context, policy=policy)


@run_command.register
def _(_: say.UseFleet, world: CoreState) -> None:
    """There is one fleet with a name: the one that comes with Forewarn."""
    for scope in demonstration_fleet(CreationContext(at=world.now, new_epoch=world.new_epoch)):
        if scope.id in world.scopes:
            raise ResourceExists(f"scope {scope.id}")
        world.save(scope.id, Change(scope, (), None))


@run_command.register
def _(command: say.Handler, world: CoreState) -> None:
    """Nobody is examined here: the story plays the VM's part itself."""
    world.find(command.vm)


@run_command.register
def _(command: say.AddScope, world: CoreState) -> None:
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
    world.save(scope.id, inventory.create_scope(scope, by=say.OPERATOR, now=world.now))


@run_command.register
def _(command: say.ChangeScope, world: CoreState) -> None:
    scope = world.scope(command.scope)
    traits = _traits(world.scopes[scope].traits, command.priority, command.terminate_notice)
    world.apply(
        scope,
        lambda value: inventory.change_scope(
            value,
            world.context,
            by=say.OPERATOR,
            now=world.now,
            traits=traits,
            approval=command.approval,
            auto_approve=command.auto_approve,
        ),
    )


@run_command.register
def _(command: say.RemoveScope, world: CoreState) -> None:
    world.apply(
        world.scope(command.scope),
        lambda scope: inventory.remove_scope(scope, by=command.by, now=world.now, why=command.why, force=command.force),
    )


@run_command.register
def _(command: say.AddVms, world: CoreState) -> None:
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


@run_command.register
def _(command: say.ChangeVm, world: CoreState) -> None:
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
        lambda value: inventory.change_vm(value, changed, world.context, by=command.by, now=world.now),
    )


@run_command.register
def _(command: say.RemoveVm, world: CoreState) -> None:
    scope, name = world.find(command.vm)
    world.apply(
        scope,
        lambda value: inventory.remove_vm(
            value, name, world.context, by=command.by, now=world.now, why=command.why, force=command.force
        ),
    )


def _traits(base: Traits, priority: Priority | None, terminate_notice: timedelta | None) -> Traits:
    return Traits(priority=priority, terminate_notice=terminate_notice).with_defaults(base)


@run_command.register
def _(command: say.Tick, world: CoreState) -> None:
    if command.time is not None:
        world.set_clock(command.time)
    world.tick()


@run_command.register
def _(command: say.Outage, world: CoreState) -> None:
    """Whatever lived in memory only is lost."""
    began_at, world.now = world.now, world.now + command.time
    outage = Outage(began_at=began_at, ended_at=world.now)
    world.context = msgspec.structs.replace(world.context, outages=(*world.context.outages, outage))
    world.seen_at = {}


@run_command.register
def _(command: say.Query, world: CoreState) -> None:
    """As a service does it: every request counts, few are saved."""
    scope, _ = world.find(command.vm)
    world.seen_at[scope] = world.now
    if needs_save(world.scopes[scope], now=world.now):
        world.apply(scope, lambda value: mark_seen(value, now=world.now, epoch=world.new_epoch()))


@run_command.register
def _(command: say.Approve, world: CoreState) -> None:
    scope, vm = world.find(command.vm)
    ids = [world.event(event) for event in command.events]
    world.apply(scope, lambda value: approve(value, vm, ids, world.context, now=world.now, by=command.through))


@run_command.register
def _(command: say.Schedule, world: CoreState) -> None:
    not_before = None if command.not_before is None else world.names.moment(command.not_before)
    ask = ScheduleRequest(
        id=world.request_id(command.request),
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
    _schedule(world, ask)


@run_command.register
def _(command: say.Restart, world: CoreState) -> None:
    _schedule(world, operations.restart(command.vm, request=world.request_id(command.request), by=say.USER))


@run_command.register
def _(command: say.Redeploy, world: CoreState) -> None:
    _schedule(world, operations.redeploy(command.vm, request=world.request_id(command.request), by=say.USER))


@run_command.register
def _(command: say.Evict, world: CoreState) -> None:
    request = world.request_id(command.request)
    _schedule(world, operations.evict(command.vm, request=request, by=PLATFORM, notice=command.notice))


@run_command.register
def _(command: say.Fail, world: CoreState) -> None:
    request = world.request_id(command.request)
    _schedule(world, operations.fail(command.vms, request=request, by=PLATFORM, kind=command.type))


@run_command.register
def _(command: say.Predict, world: CoreState) -> None:
    request = world.request_id(command.request)
    _schedule(world, operations.predict_failure(command.vms, request=request, by=PLATFORM, ahead=command.ahead))


def _schedule(state: CoreState, request: ScheduleRequest) -> None:
    """Make the events of a request in all scopes of its VMs, or in none."""
    found = [state.find(name) for name in request.vms]
    requests: dict[str, ScheduleRequest] = {}
    for scope in dict.fromkeys(scope for scope, _ in found):
        requests[scope] = msgspec.structs.replace(request, vms=tuple(vm for home, vm in found if home == scope))
    rules = {scope: _schedule_rule(state, part) for scope, part in requests.items()}
    event_ids = state.apply_all(rules, named=[vm for _, vm in found])
    if not state.facts:
        state.facts += [f"{state.names.label(event)} is known" for events in event_ids.values() for event in events]


def _schedule_rule(state: CoreState, request: ScheduleRequest) -> Callable[[Scope], Change[tuple[str, ...]]]:
    return lambda scope: schedule(scope, request, state.context, now=state.now)


@run_command.register
def _(command: say.Delete, world: CoreState) -> None:
    scope, vm = world.find(command.vm)
    request = world.request_id(command.request)
    world.apply(
        scope,
        lambda value: operations.delete(value, vm, world.context, request=request, by=say.USER, now=world.now),
        named=[vm],
    )


@run_command.register
def _(command: say.Cancel, world: CoreState) -> None:
    event = world.event(command.event)
    world.apply(
        world.scope_of_event(event),
        lambda scope: operations.cancel(scope, event, world.context, by=command.by, now=world.now, why=command.why),
    )


@run_command.register
def _(command: say.Clear, world: CoreState) -> None:
    event = world.event(command.event)
    world.apply(
        world.scope_of_event(event), lambda scope: operations.clear(scope, (event,), world.context, now=world.now)
    )


@run_command.register
def _(command: say.Hold, world: CoreState) -> None:
    if command.what == say.ALL_SCOPES:
        held = Hold(by=command.by, at=world.now, reason=command.reason)
        world.context = msgspec.structs.replace(world.context, hold=held)
        world.facts.append(f"everything held by {command.by} ({command.reason})")
        return
    world.apply(
        world.scope(command.what),
        lambda scope: operations.hold(scope, by=command.by, reason=command.reason, now=world.now),
    )


@run_command.register
def _(command: say.Release, world: CoreState) -> None:
    if command.what == say.ALL_SCOPES:
        world.context = msgspec.structs.replace(world.context, hold=None)
        world.facts.append(f"everything released by {command.by}")
        world.tick()
        return
    world.apply(
        world.scope(command.what),
        lambda scope: operations.release(scope, world.context, by=command.by, now=world.now, why=command.why),
    )


@run_command.register
def _(command: say.Begin, world: CoreState) -> None:
    _on_impacts(
        world,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.begin(scope, event, vm, now=world.now, again=command.again),
    )


@run_command.register
def _(command: say.Done, world: CoreState) -> None:
    _settle(world, command.event, command.vms, Done(command.host))


@run_command.register
def _(command: say.Failed, world: CoreState) -> None:
    _settle(world, command.event, command.vms, Failed(command.why))


@run_command.register
def _(command: say.Later, world: CoreState) -> None:
    _settle(world, command.event, command.vms, Retry(command.after, command.why))


@run_command.register
def _(command: say.Unknown, world: CoreState) -> None:
    _settle(world, command.event, command.vms, Unknown(command.why))


@run_command.register
def _(command: say.Retry, world: CoreState) -> None:
    _on_impacts(
        world,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.retry(
            scope, event, vm, by=command.by, now=world.now, why=command.why
        ),
    )


@run_command.register
def _(command: say.Resolve, world: CoreState) -> None:
    event = world.event(command.event)
    world.apply(
        world.scope_of_event(event),
        lambda scope: impact_lifecycle.resolve(
            scope,
            event,
            world.context,
            by=command.by,
            why=command.why,
            now=world.now,
            done=command.done,
            vm=command.vm,
        ),
    )


def _settle(state: CoreState, name: str, vms: tuple[str, ...], outcome: ImpactOutcome) -> None:
    _on_impacts(
        state,
        name,
        vms,
        lambda scope, event, vm: impact_lifecycle.settle(scope, event, vm, outcome, state.context, now=state.now),
    )


def _on_impacts(
    state: CoreState, name: str, vms: tuple[str, ...], rule: Callable[[Scope, str, str], Change[R]]
) -> None:
    """Apply a rule to an event's work on each of these VMs in turn; without names, on all of the event's."""
    event = state.event(name)
    scope_id = state.scope_of_event(event)
    for vm in vms or state.scopes[scope_id].event(event).vms:
        state.apply(scope_id, lambda scope: rule(scope, event, vm))  # noqa: B023 - applied at once


@run_command.register
def _(command: say.SetFault, world: CoreState) -> None:
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
    world.facts.append(render_fault(command))


@run_command.register
def _(_: say.ClearFaults, world: CoreState) -> None:
    world.facts.append(FAULTS_CLEARED)


@run_command.register
def _(command: say.Explain, world: CoreState) -> None:
    scope = world.scopes[world.scope_of_event(world.event(command.event))]
    holds = explain(scope, scope.event(world.event(command.event)), world.context, now=world.now)
    world.facts += [world.names.replace_ids(sentence) for sentence in blocker_messages(holds)]


@run_command.register
def _(command: say.Document, world: CoreState) -> None:
    scope, _ = world.find(command.vm)
    world.facts += render_document(world.scopes[scope], world.names)


@run_command.register
def _(command: say.State, world: CoreState) -> None:
    world.facts += render_scope(world.scopes[world.scope(command.scope)], world.names)


@run_command.register
def _(command: say.Wake, world: CoreState) -> None:
    scope = world.scope(command.scope)
    moment = wake_at(world.scopes[scope], world.context, seen_at=world.seen_at.get(scope))
    world.facts.append("never" if moment is None else world.names.time(moment))
