"""Scopes in the main loop: applies rules to them, and determines the guards of their changes."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from forewarn.clock import Clock, ManualClock
from forewarn.core.change import Change
from forewarn.core.journal import EntryKind
from forewarn.core.policy import HostState, Policy, RuleContext
from forewarn.core.scope import Scope, migrate
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.event_loop import SLICE_ITEMS, FairShare
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.hold_record import HoldRecord
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordChange, RecordCodec
from forewarn.fleet.replica import LongPollObserver, Replica, RosterObservers, ScopeView
from forewarn.store.port import NO_GUARDS, Guards, RecordKind

R = TypeVar("R")

ScopeChange = RecordChange[Scope]

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Scope).decode

ScopeRule: TypeAlias = Callable[[Scope], Change[R] | Decision[Scope, R]]
"""A rule for one scope. If it has read other records, it returns a Decision that names them (`guarded`)."""


def decode(value: bytes) -> Scope:
    """Decode a scope, and upgrade one that an older version has saved."""
    return migrate(_decode(value))


def reuse_roster(before: Scope, after: Scope) -> Scope:
    """Return the newer scope with the roster of the older one, if its VMs are the same: most changes are of events."""
    return msgspec.structs.replace(after, roster=before.roster) if after.roster == before.roster else after


def guarded(change: Change[R], guards: Guards) -> Decision[Scope, R]:
    """Return a rule's change as a decision that depends on these records besides the scope."""
    return Decision(change.scope, change.entries, change.result, guards)


class Scopes:
    """All scopes: read from the replica, and changed only by rules."""

    def __init__(
        self, main_loop: MainLoop, clock: Clock, policy: Policy, state_record: FleetStateRecord, hold: HoldRecord
    ) -> None:
        self.clock = clock
        self.replica = Replica()
        self.policy = policy
        self.host_states: dict[str, HostState] | None = None
        """What is known about the hosts of a cluster; None outside one."""
        self.has_clock = True
        """Whether commands start due events. In a cluster only the holder of the clock lease does, under its term."""
        self._rule_context = self._clock_context = RuleContext(policy=policy)
        self._state_record = state_record
        self._hold = hold
        roster_changes = RosterObservers()
        self.roster_observers = roster_changes.observers
        """The observers of scopes that are created or removed, and of changes of their VMs, in order."""
        self._last = (roster_changes.observe, LongPollObserver(self.replica).observe)
        codec = RecordCodec(RecordKind.SCOPE, encode, decode, reuse=reuse_roster)
        self._loop = main_loop.add(codec, self.replica, self._last, fair_share=self.new_fair_share())

    @property
    def observers(self) -> tuple[Observer[Scope], ...]:
        """The observers of every change of a scope, in order; those of rosters and the long polls are the last ones."""
        return tuple(self._loop.observers)

    def add_observers(self, *observers: Observer[Scope]) -> None:
        """Add observers, which get a change after those that were added before."""
        added = self._loop.observers
        added[len(added) - len(self._last) : -len(self._last)] = observers

    @property
    def rule_context(self) -> RuleContext:
        """The context of the rules: policy, fleet hold, outages, hosts."""
        self._update_contexts()
        return self._rule_context

    @property
    def clock_context(self) -> RuleContext:
        """The context of rules that are saved under the clock lease, if there is one: due events start."""
        self._update_contexts()
        return self._clock_context

    def _update_contexts(self) -> None:
        known, hold, outages = self._clock_context, self._hold.current, self._state_record.state.outages
        if (
            known.policy is not self.policy
            or known.hold is not hold
            or known.outages is not outages
            or known.hosts is not self.host_states
            or self._rule_context.starts_due is not self.has_clock
        ):
            self._clock_context = RuleContext(policy=self.policy, hold=hold, outages=outages, hosts=self.host_states)
            self._rule_context = msgspec.structs.replace(self._clock_context, starts_due=self.has_clock)

    async def apply(self, id_: str, rule: ScopeRule[R]) -> R:
        """Apply a rule to the newest value of a scope, save it, and return the rule's result.

        A decision that starts an event is always guarded by the fleet's hold.
        """
        return await self.submit(id_, rule)

    def submit(self, id_: str, rule: ScopeRule[R]) -> asyncio.Future[R]:
        """Queue a rule as `apply` does, and return the future of its result."""
        return self._loop.submit(id_, partial(self._apply_rule, id_, rule))

    def _apply_rule(self, id_: str, rule: ScopeRule[R], scope: Scope | None) -> Decision[Scope, R]:
        if scope is None:
            raise ScopeNotFound(id_)
        decided = rule(scope)
        decision = decided if isinstance(decided, Decision) else guarded(decided, NO_GUARDS)
        if any(entry.kind is EntryKind.STARTED for entry in decision.entries):
            guards = {**decision.guards, **self._hold.guards}
            return Decision(decision.value, decision.entries, decision.result, guards)
        return decision

    def guards(self, id_: str) -> Guards:
        """Return a scope with its newest revision, as the guard of a decision that has read it."""
        return self._loop.guards(id_)

    async def decide(self, id_: str, command: Callable[[Scope | None], Decision[Scope, R]]) -> R:
        """Apply a command to a scope that may not exist."""
        return await self._loop.apply(id_, command)

    async def catch_up(self, id_: str, revision: int) -> None:
        """Load the newest value of a scope if another process has seen a newer revision of it."""
        await self._loop.catch_up(id_, revision)

    def notify(self, view: ScopeView) -> None:
        """Pass a scope to the observers in which only time has passed."""
        self._loop.notify(RecordChange(view.id, view.scope, view.scope))

    def new_fair_share(self) -> FairShare:
        """Return a fair share. With a manual clock it counts items, so that the order is the same on any machine."""
        return FairShare(max_items=SLICE_ITEMS if isinstance(self.clock, ManualClock) else None)
