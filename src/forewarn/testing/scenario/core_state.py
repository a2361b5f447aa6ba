"""State of a scenario on the pure core: scopes, rule context, labels and current time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import NAMESPACE_DNS, uuid5

from forewarn.core.change import Change
from forewarn.core.errors import ScopeVmNotFound
from forewarn.core.event import Event
from forewarn.core.impact import Impact
from forewarn.core.impact_lifecycle import impacts_to_begin
from forewarn.core.journal import Entry
from forewarn.core.lifecycle import tick
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.scope import Scope
from forewarn.platform.port import Work
from forewarn.testing.scenario.render import FactRenderer, Names, campaign_order, render_campaign_entry
from forewarn.testing.scenario.runner import InvalidCommand, event_id

R = TypeVar("R")
Rule = Callable[[Scope], Change[R]]

START_TIME = timedelta(hours=10)
"""The default start time of a scenario."""


class CoreState:
    """The current state and the facts reported so far. It changes only when a rule is applied to it."""

    def __init__(self) -> None:
        self.names = Names()
        self.now = self.names.moment(START_TIME)
        self.context = RuleContext(policy=EMULATOR)
        self.scopes: dict[str, Scope] = {}
        self.seen_at: dict[str, datetime] = {}
        self.facts: list[str] = []
        self.journals: dict[str, list[Entry]] = {}
        """The entries of each scope."""
        self.has_campaigns = False
        """Whether simultaneous facts are reported in the order of `campaign_order`."""
        self._unordered: list[tuple[tuple[datetime, str, str], str | None, Entry, Sequence[str]]] = []
        self._renderers: dict[str, FactRenderer] = {}
        self._event_scopes: dict[str, str] = {}
        self._reported_work: set[tuple[str, str]] = set()
        self._requests = 0
        self._epochs = 0

    def set_clock(self, time: timedelta) -> None:
        """Set the clock to a time of the scenario, forwards or back."""
        self.now = self.names.moment(time)

    def apply(self, scope: str, rule: Rule[R], named: Sequence[str] = ()) -> R:
        """Apply a rule to a scope, save the change and report its facts."""
        return self.apply_all({scope: rule}, named)[scope]

    def apply_all(self, rules: Mapping[str, Rule[R]], named: Sequence[str] = ()) -> dict[str, R]:
        """Apply rules to scopes: to all of them, or to none if one refuses."""
        changes = {scope: rule(self.scopes[scope]) for scope, rule in rules.items()}
        for scope, change in changes.items():
            self.save(scope, change, named)
        return {scope: change.result for scope, change in changes.items()}

    def save(self, id_: str, change: Change[R], named: Sequence[str] = ()) -> None:
        """Save a changed scope and report its journal entries as facts."""
        self._renderers.setdefault(id_, FactRenderer(id_, self.names))
        self.journals.setdefault(id_, []).extend(change.entries)
        for entry in change.entries:
            if entry.event is not None:
                self._event_scopes[entry.event] = id_
        self._unordered += [(campaign_order("scope", id_, entry), None, entry, named) for entry in change.entries]
        if change.scope is not None:
            self.scopes[id_] = change.scope
            self.names.epoch(id_, change.scope.epoch)
        if change.scope is None or not self.has_campaigns:
            self.tell()
        if change.scope is None:
            del self.scopes[id_], self._renderers[id_]

    def add_campaign_entries(self, name: str, entries: Iterable[Entry]) -> None:
        """Add entries of a campaign's journal, for the next `tell`."""
        self._unordered += [(campaign_order("campaign", name, entry), name, entry, ()) for entry in entries]

    def tell(self) -> None:
        """Report the entries since the last call as facts."""
        happened, self._unordered = self._unordered, []
        if self.has_campaigns:
            happened.sort(key=lambda item: item[0])
        for (_, _, scope), campaign, entry, named in happened:
            if campaign is None:
                self.facts += self._renderers[scope].render([entry], named)
            else:
                self.facts.append(render_campaign_entry(campaign, entry, self.names))

    def report_new_work(self) -> None:
        """Report the work that has become available to the platform since the last call."""
        available = {(event.id, impact.vm): event for event, impact in self._work()}
        new: dict[str, list[str]] = {}
        for event, vm in available:
            if (event, vm) not in self._reported_work:
                new.setdefault(event, []).append(vm)
        self.facts += [f"impact {self.names.label(event)} {' '.join(vms)}" for event, vms in new.items()]
        self._reported_work = set(available)

    def _work(self) -> list[tuple[Event, Impact]]:
        return [item for scope in self.scopes for item in self.work_of(scope)]

    def work_of(self, scope: str) -> tuple[tuple[Event, Impact], ...]:
        """Return the work that the platform can begin now in a scope."""
        return impacts_to_begin(self.scopes[scope], now=self.now)

    def platform_work(self, scope: str, event_id: str, name: str) -> Work:
        """Return the work of one event on one VM in the form that a platform gets."""
        event, vm = self.scopes[scope].event(event_id), self.scopes[scope].vm(name)
        impact = event.impact(name) or Impact(vm=name)
        return Work(
            id=f"{event.id}/{name}",
            attempt=impact.attempt,
            event=event.id,
            type=event.type,
            scope=scope,
            vm=name,
            vm_id=vm.vm_id,
            host=vm.host,
            duration=event.duration,
            description=event.description,
        )

    def tick(self) -> None:
        """Apply the time-dependent rules to every scope."""
        for id_ in tuple(self.scopes):
            seen_at = self.seen_at.get(id_)
            self.apply(id_, lambda scope: tick(scope, self.context, now=self.now, seen_at=seen_at))  # noqa: B023 - applied at once

    def scope(self, name: str) -> str:
        """Return the id of an existing scope."""
        if name not in self.scopes:
            raise InvalidCommand("unknown scope", name)
        return name

    def newest_scope(self) -> str:
        """Return the id of the scope that was created last."""
        if not self.scopes:
            raise InvalidCommand("no scope defined yet: start with `scope NAME KIND`", "")
        return list(self.scopes)[-1]

    def find(self, name: str) -> tuple[str, str]:
        """Return the scope and the name of a VM, given as `scope/name` or, if that is unambiguous, as `name`."""
        scope, slash, bare = name.rpartition("/")
        scopes = [self.scope(scope)] if slash else list(self.scopes) or [self.newest_scope()]
        found = [(id_, vm.name) for id_ in scopes if (vm := self.scopes[id_].roster.find(bare)) is not None]
        if len(found) > 1:
            raise InvalidCommand("several scopes have a VM of this name; write scope/name", name)
        if not found:
            raise ScopeVmNotFound(bare, scopes[-1])
        return found[0]

    def event(self, name: str) -> str:
        """Return the id of an event, given by its label or its id."""
        return event_id(name, self.names)

    def scope_of_event(self, event: str) -> str:
        """Return the scope of an event; for an unknown event, the newest scope."""
        scope = self._event_scopes.get(event)
        return scope if scope in self.scopes else self.newest_scope()

    def request_id(self, name: str | None) -> str:
        """Return the id of a request: the same for the same name, a new one without a name."""
        self._requests += 1
        return guid("request", name or str(self._requests))

    def new_epoch(self) -> str:
        """Return a new epoch token."""
        self._epochs += 1
        return f"epoch{self._epochs}"


def guid(*names: str) -> str:
    """Return an id that is the same in every run of a scenario."""
    return str(uuid5(NAMESPACE_DNS, "/".join(names))).upper()
