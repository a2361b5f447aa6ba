"""Impact writer: saves that impacts begin, and their outcomes. The port of `Impacts`, and its rules on scopes.

A process with the store applies the rules itself; a host asks a control node, which applies the same.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from forewarn.core.change import Change
from forewarn.core.errors import InvalidTransition
from forewarn.core.impact import Impact, ImpactOutcome, ImpactState
from forewarn.core.impact_lifecycle import LOCAL, Worker, begin, settle
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.fleet.duty import no_guards
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.main_loop import Decision
from forewarn.fleet.scopes import Scopes, guarded
from forewarn.platform.port import Work
from forewarn.store.port import Guards


class ImpactWriter(Protocol):
    """Saves the steps of impacts. Each can be repeated after an error without an outcome."""

    async def begin(self, scope: str, event: str, vm: str, *, attempt: int, again: bool) -> Work:
        """Save that an impact begins as this attempt, and return its work."""
        ...

    async def settle(self, work: Work, outcome: ImpactOutcome) -> None:
        """Save the outcome of an impact that had begun."""
        ...


class ScopeImpactWriter:
    """The writer of a process that has all VMs: it applies the rules to scopes. `guards` are those of its duty."""

    def __init__(self, scopes: Scopes, guards: Callable[[], Guards] = no_guards) -> None:
        self._scopes = scopes
        self._guards = guards

    async def begin(self, scope: str, event: str, vm: str, *, attempt: int, again: bool) -> Work:
        """Save that an impact begins, and return its work."""
        del attempt
        now = self._scopes.clock.now
        return await self._scopes.apply(
            scope, lambda value: guarded(begin_work(value, event, vm, again=again, now=now()), self._guards())
        )

    async def settle(self, work: Work, outcome: ImpactOutcome) -> None:
        """Save the outcome of an impact that had begun."""
        scopes = self._scopes

        def rule(value: Scope) -> Decision[Scope, None]:
            change = settle(value, work.event, work.vm, outcome, scopes.rule_context, now=scopes.clock.now())
            return guarded(change, self._guards())

        await scopes.apply(work.scope, rule)


def begin_work(
    scope: Scope, event: str, vm: str, *, now: datetime, again: bool, attempt: int = 0, worker: Worker = LOCAL
) -> Change[Work]:
    """Begin an impact and return its work. A host that repeats a command gets the work that it has begun."""
    if worker.host is not None:
        impact = _find_impact(scope, event, vm)
        if impact is not None and _is_repeated(impact, attempt, worker):
            if impact.state is ImpactState.BEGUN:
                return Change(scope, (), describe_work(scope, event, vm))
        elif impact is not None and impact.attempt + 1 != attempt:
            raise InvalidTransition(event, f"at attempt {impact.attempt} on {vm}", f"begin attempt {attempt}")
    change = begin(scope, event, vm, now=now, again=again, worker=worker)
    if change.scope is None:
        raise ScopeNotFound(scope.id)
    return Change(change.scope, change.entries, describe_work(change.scope, event, vm))


def settle_work(
    scope: Scope,
    event: str,
    vm: str,
    outcome: ImpactOutcome,
    context: RuleContext,
    *,
    now: datetime,
    attempt: int,
    worker: Worker,
) -> Change[None]:
    """Settle an impact of a host. An outcome that was saved before changes nothing."""
    impact = _find_impact(scope, event, vm)
    is_settled = (
        scope.has_ended(event)
        if impact is None
        else impact.state is not ImpactState.BEGUN and _is_repeated(impact, attempt, worker)
    )
    if is_settled:
        return Change(scope, (), None)
    return settle(scope, event, vm, outcome, context, now=now, worker=worker)


def _find_impact(scope: Scope, event: str, vm: str) -> Impact | None:
    found = scope.find_event(event)
    return None if found is None else found.impact(vm)


def _is_repeated(impact: Impact, attempt: int, worker: Worker) -> bool:
    return impact.attempt == attempt and (impact.host, impact.term) == worker


def describe_work(scope: Scope, event_id: str, name: str) -> Work:
    """Return the work of an impact as it is saved."""
    event, vm = scope.event(event_id), scope.vm(name)
    impact = event.impact(name) or Impact(vm=name)
    return Work(
        id=f"{event.id}/{name}",
        attempt=impact.attempt,
        event=event.id,
        type=event.type,
        scope=scope.id,
        vm=name,
        vm_id=vm.vm_id,
        host=vm.host,
        duration=event.duration,
        description=event.description,
    )
