"""Campaigns of a simulated cell: planned, decided and carried out by the real rules."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import msgspec

from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    CheckGate,
    Finding,
    GateOpened,
)
from forewarn.core.campaign.commands import plan_progress, start
from forewarn.core.campaign.draft import CampaignDecision
from forewarn.core.campaign.history import RELEVANT_KINDS
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.plan import plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.campaign.scope_rules import execute
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import EventType
from forewarn.core.journal import Entry
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.fleet.campaign.time_zones import find_zone

R = TypeVar("R")

SCOPES_AT_ONCE = 100
GAP = timedelta(minutes=5)
_encode = msgspec.json.Encoder().encode


class ScopeAccess(Protocol):
    """How a campaign changes scopes."""

    def apply(self, scope: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to a scope and save the change."""
        ...

    def find(self, scope: str) -> Scope | None:
        """Return a scope, or None if it was removed."""
        ...

    def save_campaign(self, size: int, lines: int) -> None:
        """Note that a campaign was saved."""
        ...


class SimulatedCampaign:
    """One campaign: a reboot of some scopes, wave by wave."""

    def __init__(
        self, name: str, scopes: Mapping[str, Scope], cell: ScopeAccess, load: FleetLoad, *, id_: str, now: datetime
    ) -> None:
        self._cell = cell
        self._load = load
        self._context = RuleContext()
        spec = CampaignSpec(
            name=name,
            type=EventType.REBOOT,
            selection=Selection(all=True),
            policy=CampaignPolicy(gap=GAP, scopes_at_once=Limit(number=SCOPES_AT_ONCE), halt_after=None),
        )
        planned = plan(
            spec, plan_scopes(scopes.values(), spec, self._context, now=now), self._context, now=now, zones=find_zone
        )
        begun_at = now.replace(microsecond=0)
        progress = [
            plan_progress(waves, started_at=begun_at, seen=scopes[scope].entries)
            for scope, waves in planned.by_scope().items()
        ]
        decision = start(spec, planned, progress, id_=id_, by="simulation", now=now, unannounced=True)
        self.waves = len(planned.waves)
        self.record = decision.record
        self.index = CampaignIndex(self.record, self._context, find_zone)
        self.wake_at: datetime | None = now
        self._changed = set(self.index.positions)
        self._journals: dict[str, list[Entry]] = {}
        self._save(decision)

    @property
    def scopes(self) -> Iterable[str]:
        """The scopes of the campaign."""
        return self.index.positions

    def on_change(self, scope: str, entries: Iterable[Entry]) -> None:
        """Note that one of its scopes has changed."""
        self._changed.add(scope)
        self._journals.setdefault(scope, []).extend(entry for entry in entries if entry.kind in RELEVANT_KINDS)

    def step(self, now: datetime) -> None:
        """Decide and act until nothing more is due."""
        has_more = True
        while has_more and not self.record.state.is_over:
            self.index.rebase(self.record)
            for scope in sorted(self._changed | self.index.stale):
                self.index = observe(self.index, scope, self._cell.find(scope))
            self._changed.clear()
            decision = decide(self.record, self.index, self._load, now=now)
            self._save(decision)
            self.wake_at = decision.wake_at
            for action in decision.actions:
                result = ActionResult(action, self._execute(action, now))
                self._save(apply_result(self.record, self.index, result, now=now))
            has_more = bool(decision.actions or decision.has_more)

    @property
    def needs_step(self) -> bool:
        """Whether one of its scopes has changed since the last step."""
        return bool(self._changed) and not self.record.state.is_over

    def _save(self, decision: CampaignDecision) -> None:
        if decision.record is not self.record or decision.entries:
            self._cell.save_campaign(len(_encode(decision.record)), len(decision.entries))
        self.record = decision.record

    def _execute(self, action: Action, now: datetime) -> Finding | None:
        if isinstance(action, CheckGate):
            return GateOpened(action.scope, action.n, now)
        if self._cell.find(action.scope) is None:
            return None
        record, index, context = self.record, self.index, self._context
        journal = self._journals.get(action.scope, ())
        with suppress(CoreError):  # the campaign decides again
            return self._cell.apply(
                action.scope, lambda scope: execute(action, scope, record, index, journal, context, now=now)
            )
        return None
