"""Backend that runs scenarios on the pure core, in memory and without real time.

Only the commands of the scenario change something, unless `platform automatic` lets time and platform act."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import singledispatch
from typing import TypeVar

import msgspec

from forewarn.api.fleet_file import CreationContext, demonstration_fleet
from forewarn.core import impact_lifecycle, inventory, operations
from forewarn.core.approval import approve
from forewarn.core.campaign.commands import abort, pause, resume, retry, skip
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
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_campaigns import CoreCampaigns
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
    """Runs scenarios on the pure core. `state` is the current state."""

    def __init__(self) -> None:
        self.state = CoreState()
        self._campaigns = CoreCampaigns(self.state)
        self._clock = SimulatedClock(self.state, self._campaigns)
        self._matcher = ExpectationMatcher()

    def matches(self, facts: Sequence[str], expected: Sequence[str]) -> bool:
        """Return whether the facts are exactly the expected ones: this backend is deterministic."""
        return facts_equal(facts, expected)

    def max_wait(self, command: commands.Command, at: timedelta | None) -> timedelta:  # noqa: ARG002 - the same for all
        """Return zero: simulated time needs no waiting."""
        return timedelta(0)

    def execute(self, command: commands.Command, at: timedelta | None) -> CommandResult:
        """Execute the command and return the resulting facts."""
        self.state.facts = []
        if at is not None:
            self._set_clock(at)
        if isinstance(command, commands.Expect):
            self._matcher.add(self.state.facts)
            return self._matcher.expect(command, self._advance, limit=self.state.now + command.within)
        result = CommandResult(tuple(self._facts_of(command)))
        self._matcher.reset(result.facts)
        return result

    def _facts_of(self, command: commands.Command) -> list[str]:
        state = self.state
        try:
            self._dispatch(command)
        except CoreError as refusal:
            state.tell()
            return [*state.facts, f"{REFUSED}{refusal.code}: {state.names.replace_ids(str(refusal))}"]
        self._clock.begin_work()
        state.tell()
        if not self._clock.is_automatic:
            state.report_new_work()
        return state.facts

    def _dispatch(self, command: commands.Command) -> None:
        match command:
            case commands.UsePlatform():
                self._clock.use_automatic_platform(command.lasting)
            case commands.Wait():
                self._clock.advance_to(self.state.now + command.time)
            case commands.Tick(time=timedelta() as time) if self._clock.is_automatic:
                self._set_clock(time)
            case commands.StartCampaign():
                self._campaigns.start(command)
            case commands.PauseCampaign(campaign=name, by=by, why=why):
                self._campaigns.apply(name, lambda record: pause(record, by=by, why=why, now=self.state.now))
            case commands.ResumeCampaign(campaign=name, by=by, why=why):
                self._campaigns.apply(name, lambda record: resume(record, by=by, why=why, now=self.state.now))
            case commands.AbortCampaign(campaign=name, by=by, why=why):
                self._campaigns.apply(name, lambda record: abort(record, by=by, why=why, now=self.state.now))
            case commands.RetryWave(campaign=name, scope=scope, by=by, why=why):
                value = self.state.scopes.get(scope)
                self._campaigns.apply(
                    name, lambda record: retry(record, scope, value, by=by, why=why, now=self.state.now)
                )
            case commands.SkipWave(campaign=name, scope=scope, by=by, why=why):
                self._campaigns.apply(name, lambda record: skip(record, scope, by=by, why=why, now=self.state.now))
            case commands.SetGate(state=gate_state):
                self._campaigns.is_gate_open = gate_state is commands.GateState.OPEN
            case _:
                run_command(command, self.state)

    def _set_clock(self, time: timedelta) -> None:
        """Set the time: advance the clock if the platform is automatic; otherwise jump, forwards or back."""
        if self._clock.is_automatic:
            self._advance_to(self.state.names.moment(time))
        else:
            self.state.set_clock(time)

    def _advance_to(self, moment: datetime) -> None:
        if moment < self.state.now:
            now = self.state.names.time(self.state.now)
            raise InvalidCommand(f"the clock is already at {now} and cannot go back with `platform automatic`", "at")
        self._clock.advance_to(moment)

    def _advance(self, limit: datetime) -> list[str] | None:
        self.state.facts = []
        has_changed = self._clock.advance(limit)
        if not self._clock.is_automatic:
            self.state.report_new_work()
        return self.state.facts if has_changed else None


@singledispatch
def run_command(command: commands.BaseCommand, _state: CoreState) -> None:
    """Execute a command: one function for each type of command."""
    raise TypeError(f"{type(command).__name__} is not for this backend")


@run_command.register
def _(command: commands.SetPolicy, state: CoreState) -> None:
    policy = apply_policy(state.context.policy, command)
    state.context = msgspec.structs.replace(state.context, policy=policy)


@run_command.register
def _(_: commands.UseFleet, state: CoreState) -> None:
    """Create the demonstration fleet, the only fleet that has a name."""
    for scope in demonstration_fleet(CreationContext(at=state.now, new_epoch=state.new_epoch)):
        if scope.id in state.scopes:
            raise ResourceExists(f"scope {scope.id}")
        state.save(scope.id, Change(scope, (), None))


@run_command.register
def _(command: commands.Handler, state: CoreState) -> None:
    """Check the VM. On the core, the scenario itself acts as the handler."""
    state.find(command.vm)


@run_command.register
def _(command: commands.AddScope, state: CoreState) -> None:
    if command.scope in state.scopes:
        raise ResourceExists(f"scope {command.scope}")
    scope = Scope(
        id=command.scope,
        kind=command.kind,
        epoch=state.new_epoch(),
        changed_at=state.now,
        traits=_traits(Traits(), command.priority, command.terminate_notice),
        approval=command.approval,
        auto_approve=command.auto_approve,
    )
    state.save(scope.id, inventory.create_scope(scope, by=commands.OPERATOR, now=state.now))


@run_command.register
def _(command: commands.ChangeScope, state: CoreState) -> None:
    scope = state.scope(command.scope)
    traits = _traits(state.scopes[scope].traits, command.priority, command.terminate_notice)
    state.apply(
        scope,
        lambda value: inventory.change_scope(
            value,
            state.context,
            by=commands.OPERATOR,
            now=state.now,
            traits=traits,
            approval=command.approval,
            auto_approve=command.auto_approve,
        ),
    )


@run_command.register
def _(command: commands.RemoveScope, state: CoreState) -> None:
    state.apply(
        state.scope(command.scope),
        lambda scope: inventory.remove_scope(scope, by=command.by, now=state.now, why=command.why, force=command.force),
    )


@run_command.register
def _(command: commands.AddVms, state: CoreState) -> None:
    scope = state.scope(command.scope) if command.scope is not None else state.newest_scope()
    for name in command.names:
        vm = Vm(
            name=name,
            vm_id=guid("vm", scope, name),
            update_domain=command.domain,
            host=command.host,
            traits=_traits(Traits(), command.priority, command.terminate_notice),
        )
        state.apply(scope, lambda value, vm=vm: inventory.add_vm(value, vm, by=commands.OPERATOR, now=state.now))  # type: ignore[misc]  # mypy cannot infer a lambda with a default


@run_command.register
def _(command: commands.ChangeVm, state: CoreState) -> None:
    scope, name = state.find(command.vm)
    old = state.scopes[scope].vm(name)
    changed = msgspec.structs.replace(
        old,
        update_domain=old.update_domain if command.domain is None else command.domain,
        host=old.host if command.host is msgspec.UNSET else command.host,
        traits=_traits(old.traits, command.priority, command.terminate_notice),
    )
    state.apply(
        scope,
        lambda value: inventory.change_vm(value, changed, state.context, by=command.by, now=state.now),
    )


@run_command.register
def _(command: commands.RemoveVm, state: CoreState) -> None:
    scope, name = state.find(command.vm)
    state.apply(
        scope,
        lambda value: inventory.remove_vm(
            value, name, state.context, by=command.by, now=state.now, why=command.why, force=command.force
        ),
    )


def _traits(base: Traits, priority: Priority | None, terminate_notice: timedelta | None) -> Traits:
    return Traits(priority=priority, terminate_notice=terminate_notice).with_defaults(base)


@run_command.register
def _(command: commands.Tick, state: CoreState) -> None:
    if command.time is not None:
        state.set_clock(command.time)
    state.tick()


@run_command.register
def _(command: commands.Outage, state: CoreState) -> None:
    """Advance the clock; values that are only in memory are lost."""
    began_at, state.now = state.now, state.now + command.time
    outage = Outage(began_at=began_at, ended_at=state.now)
    state.context = msgspec.structs.replace(state.context, outages=(*state.context.outages, outage))
    state.seen_at = {}


@run_command.register
def _(command: commands.Query, state: CoreState) -> None:
    """Mark the scope as seen. As in a service, every request counts, but few are saved."""
    scope, _ = state.find(command.vm)
    state.seen_at[scope] = state.now
    if needs_save(state.scopes[scope], now=state.now):
        state.apply(scope, lambda value: mark_seen(value, now=state.now, epoch=state.new_epoch()))


@run_command.register
def _(command: commands.Approve, state: CoreState) -> None:
    scope, vm = state.find(command.vm)
    ids = [state.event(event) for event in command.events]
    state.apply(scope, lambda value: approve(value, vm, ids, state.context, now=state.now, by=command.through))


@run_command.register
def _(command: commands.Schedule, state: CoreState) -> None:
    not_before = None if command.not_before is None else state.names.moment(command.not_before)
    request = ScheduleRequest(
        id=state.request_id(command.request),
        type=command.type,
        vms=command.vms,
        by=command.by,
        source=Source.USER if command.by == commands.USER else Source.PLATFORM,
        not_before=not_before,
        notice=command.notice,
        duration=command.duration,
        why=command.why,
        key=command.key,
        campaign=command.campaign,
        at_once=command.now,
        unannounced=command.unannounced,
        digest=guid(repr(msgspec.structs.replace(command, request=None)))[:DIGEST_LENGTH],
    )
    _schedule(state, request)


@run_command.register
def _(command: commands.Restart, state: CoreState) -> None:
    _schedule_operation(state, operations.restart, command)


@run_command.register
def _(command: commands.Redeploy, state: CoreState) -> None:
    _schedule_operation(state, operations.redeploy, command)


def _schedule_operation(
    state: CoreState, operation: Callable[..., ScheduleRequest], command: commands.Restart | commands.Redeploy
) -> None:
    request = operation(command.vm, request=state.request_id(command.request), by=commands.USER)
    _schedule(state, msgspec.structs.replace(request, at_once=command.now, unannounced=command.unannounced))


@run_command.register
def _(command: commands.Evict, state: CoreState) -> None:
    request = operations.evict(
        command.vm, request=state.request_id(command.request), by=PLATFORM, notice=command.notice
    )
    _schedule(state, msgspec.structs.replace(request, at_once=command.now, unannounced=command.unannounced))


@run_command.register
def _(command: commands.Fail, state: CoreState) -> None:
    request = state.request_id(command.request)
    _schedule(state, operations.fail(command.vms, request=request, by=PLATFORM, kind=command.type))


@run_command.register
def _(command: commands.Predict, state: CoreState) -> None:
    request = operations.predict_failure(
        command.vms, request=state.request_id(command.request), by=PLATFORM, ahead=command.ahead
    )
    _schedule(state, msgspec.structs.replace(request, unannounced=command.unannounced))


def _schedule(state: CoreState, request: ScheduleRequest) -> None:
    """Create the events of a request in all scopes of its VMs, or in none."""
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
def _(command: commands.Delete, state: CoreState) -> None:
    scope, vm = state.find(command.vm)
    request = state.request_id(command.request)
    state.apply(
        scope,
        lambda value: operations.delete(
            value,
            vm,
            state.context,
            request=request,
            by=commands.USER,
            now=state.now,
            at_once=command.now,
            unannounced=command.unannounced,
        ),
        named=[vm],
    )


@run_command.register
def _(command: commands.Cancel, state: CoreState) -> None:
    event = state.event(command.event)
    state.apply(
        state.scope_of_event(event),
        lambda scope: operations.cancel(scope, event, state.context, by=command.by, now=state.now, why=command.why),
    )


@run_command.register
def _(command: commands.Clear, state: CoreState) -> None:
    event = state.event(command.event)
    state.apply(
        state.scope_of_event(event), lambda scope: operations.clear(scope, (event,), state.context, now=state.now)
    )


@run_command.register
def _(command: commands.Hold, state: CoreState) -> None:
    if command.what == commands.ALL_SCOPES:
        held = Hold(by=command.by, at=state.now, reason=command.reason)
        state.context = msgspec.structs.replace(state.context, hold=held)
        state.facts.append(f"everything held by {command.by} ({command.reason})")
        return
    state.apply(
        state.scope(command.what),
        lambda scope: operations.hold(scope, by=command.by, reason=command.reason, now=state.now),
    )


@run_command.register
def _(command: commands.Release, state: CoreState) -> None:
    if command.what == commands.ALL_SCOPES:
        state.context = msgspec.structs.replace(state.context, hold=None)
        state.facts.append(f"everything released by {command.by}")
        state.tick()
        return
    state.apply(
        state.scope(command.what),
        lambda scope: operations.release(scope, state.context, by=command.by, now=state.now, why=command.why),
    )


@run_command.register
def _(command: commands.Begin, state: CoreState) -> None:
    _on_impacts(
        state,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.begin(scope, event, vm, now=state.now, again=command.again),
    )


@run_command.register
def _(command: commands.Done, state: CoreState) -> None:
    _settle(state, command.event, command.vms, Done(command.host))


@run_command.register
def _(command: commands.Failed, state: CoreState) -> None:
    _settle(state, command.event, command.vms, Failed(command.why))


@run_command.register
def _(command: commands.Later, state: CoreState) -> None:
    _settle(state, command.event, command.vms, Retry(command.after, command.why))


@run_command.register
def _(command: commands.Unknown, state: CoreState) -> None:
    _settle(state, command.event, command.vms, Unknown(command.why))


@run_command.register
def _(command: commands.Retry, state: CoreState) -> None:
    _on_impacts(
        state,
        command.event,
        command.vms,
        lambda scope, event, vm: impact_lifecycle.retry(
            scope, event, vm, by=command.by, now=state.now, why=command.why
        ),
    )


@run_command.register
def _(command: commands.Resolve, state: CoreState) -> None:
    event = state.event(command.event)
    state.apply(
        state.scope_of_event(event),
        lambda scope: impact_lifecycle.resolve(
            scope,
            event,
            state.context,
            by=command.by,
            why=command.why,
            now=state.now,
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
    """Apply a rule to the event's impact on each of these VMs; by default, on all VMs of the event."""
    event = state.event(name)
    scope_id = state.scope_of_event(event)
    for vm in vms or state.scopes[scope_id].event(event).vms:
        state.apply(scope_id, lambda scope: rule(scope, event, vm))  # noqa: B023 - applied at once


@run_command.register
def _(command: commands.SetFault, state: CoreState) -> None:
    """Check the fault and report it; the core has no endpoint that could apply it."""
    vm = None if command.vm is None else "/".join(state.find(command.vm))
    until = None if command.lasting is None else state.now + command.lasting
    Fault(
        id=guid("fault"),
        kind=command.kind,
        vm=vm,
        until=until,
        times=command.times,
        amount=command.amount,
        by=commands.OPERATOR,
        set_at=state.now,
    )
    state.facts.append(render_fault(command))


@run_command.register
def _(_: commands.ClearFaults, state: CoreState) -> None:
    state.facts.append(FAULTS_CLEARED)


@run_command.register
def _(command: commands.Explain, state: CoreState) -> None:
    scope = state.scopes[state.scope_of_event(state.event(command.event))]
    holds = explain(scope, scope.event(state.event(command.event)), state.context, now=state.now)
    state.facts += [state.names.replace_ids(sentence) for sentence in blocker_messages(holds)]


@run_command.register
def _(command: commands.Document, state: CoreState) -> None:
    scope, _ = state.find(command.vm)
    state.facts += render_document(state.scopes[scope], state.names)


@run_command.register
def _(command: commands.State, state: CoreState) -> None:
    state.facts += render_scope(state.scopes[state.scope(command.scope)], state.names)


@run_command.register
def _(command: commands.Wake, state: CoreState) -> None:
    scope = state.scope(command.scope)
    moment = wake_at(state.scopes[scope], state.context, now=state.now, seen_at=state.seen_at.get(scope))
    state.facts.append("never" if moment is None else state.names.time(moment))
