"""Action executor: executes what a rollout has decided, in the scopes, in the journal and at the gate.

Each action returns a finding as a value; the runner saves it together with everything else that has happened.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from forewarn.core.campaign.actions import (
    Action,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    Finding,
    GateClosed,
    GateOpened,
    ReadOutcome,
    RetryEvent,
    ScopeAction,
    ScopeClosed,
    WaveEnded,
    WithdrawEvent,
)
from forewarn.core.campaign.history import RELEVANT_KINDS, ScopeHistory, read_history
from forewarn.core.campaign.index import CampaignIndex
from forewarn.core.campaign.record import Campaign
from forewarn.core.campaign.scope_rules import clear_wave, close_scope, execute
from forewarn.core.journal import Entry
from forewarn.core.scope import Scope
from forewarn.fleet.errors import SAVE_ERRORS
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.main_loop import Decision
from forewarn.fleet.retry import repeat_until_saved
from forewarn.fleet.scopes import Scopes, guarded
from forewarn.platform.port import GateChecker, GateFailed, GatePassed, GateRequest
from forewarn.store.port import Guards, JournalQuery, RecordKey, RecordKind, Store, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")

CLEAR_PAUSE = 0.5
"""The pause, in seconds of real time, after a clearing could not be saved. Then the campaign decides again."""

JOURNAL_PAGE = 5_000
"""How many rows of a scope's journal are read at a time."""


class ActionOwner(Protocol):
    """The campaign for which actions are executed."""

    @property
    def record(self) -> Campaign:
        """The last saved record."""
        ...

    @property
    def index(self) -> CampaignIndex:
        """Everything that is derived from the record and the scopes."""
        ...

    @property
    def newest(self) -> Campaign:
        """The newest saved record, by any process. Decisions that use it are guarded by `guards`."""
        ...

    def guards(self) -> Guards:
        """Return the campaign's record with its known revision, and the guards of the duty."""
        ...

    def duty_guards(self) -> Guards:
        """Return the guards of everything that the duty to run campaigns saves."""
        ...

    def now(self) -> datetime:
        """Return the campaign's time."""
        ...


class ActionExecutor:
    """Executes the actions of one campaign."""

    def __init__(self, owner: ActionOwner, scopes: Scopes, store: Store, *, checker: GateChecker) -> None:
        self._owner = owner
        self._scopes = scopes
        self._store = store
        self._checker = checker
        self._fair_share = FairShare()

    async def execute(self, action: Action) -> Finding | None:
        """Execute an action; return its finding. None: the scope itself shows the result."""
        match action:
            case AnnounceWave(scope):
                return await self._apply(action, await self._read_journal(scope), self._owner.guards)
            case ClearWave():
                await self._clear_wave(action)
                return None
            case WithdrawEvent() | RetryEvent():
                return await self._apply(action, (), self._owner.duty_guards)
            case ReadOutcome(scope, n):
                history = await self._read_history(scope)
                return WaveEnded(scope, n, history.outcomes.get(n, ()))
            case CloseScope(scope):
                return await self._close_scope(scope)
            case CheckGate():
                return await self._check_gate(action)

    async def _apply(
        self, action: ScopeAction, journal: Sequence[Entry], guards: Callable[[], Guards]
    ) -> Finding | None:
        """Execute an action in its scope, and retry until that is saved."""

        def rule(scope: Scope) -> Decision[Scope, Finding | None]:
            owner, context = self._owner, self._scopes.rule_context
            change = execute(action, scope, owner.newest, owner.index, journal, context, now=owner.now())
            return guarded(change, guards())

        return await self._retry(f"save scope {action.scope}", lambda: self._scopes.apply(action.scope, rule))

    async def _clear_wave(self, action: ClearWave) -> None:
        """Clear events.

        If that cannot be saved, it is not retried: the campaign decides again whether they may start then.
        """

        def rule(scope: Scope) -> Decision[Scope, None]:
            owner, context = self._owner, self._scopes.clock_context
            change = clear_wave(scope, action, owner.newest, owner.index, context, now=owner.now())
            return guarded(change, owner.guards())

        try:
            await self._scopes.apply(action.scope, rule)
        except SAVE_ERRORS as error:
            log.warning("%s; campaign %s decides again in %.1f s", error, self._owner.record.name, CLEAR_PAUSE)
            await asyncio.sleep(CLEAR_PAUSE)

    async def _close_scope(self, id_: str) -> ScopeClosed:
        history = await self._read_history(id_)
        if not history.covers(self._owner.index.progress(id_).waves):
            log.warning("the journal no longer shows which VMs campaign %s has finished", self._owner.record.name)
        scope, _ = self._scopes.replica.newest(id_)
        return close_scope(id_, scope, self._owner.index, history)

    async def _check_gate(self, action: CheckGate) -> GateOpened | GateClosed:
        spec, checked_at = self._owner.record.spec, self._owner.now()
        result: GatePassed | GateFailed = GateFailed("there is no gate")
        if spec.policy.gate is not None:
            gate_request = GateRequest(
                gate=spec.policy.gate, campaign=self._owner.record.id, name=spec.name, scope=action.scope, wave=action.n
            )
            try:
                result = await self._checker.check(gate_request)
            except Exception as error:
                log.exception("could not check the gate of campaign %s", spec.name)
                result = GateFailed(f"it could not be checked: {error!r}")
        if isinstance(result, GateFailed):
            return GateClosed(action.scope, action.n, result.reason)
        return GateOpened(action.scope, action.n, checked_at)

    async def _read_history(self, scope: str) -> ScopeHistory:
        seen = self._owner.index.progress(scope).seen
        return read_history(await self._read_journal(scope), self._owner.record.id, seen=seen)

    async def _read_journal(self, scope: str) -> list[Entry]:
        """Read the relevant entries of a scope since the campaign began."""
        since = self._owner.record.started_at  # no row is older, because its scopes use the campaign's time
        entries: list[Entry] = []
        after = 0
        while True:
            query = JournalQuery(
                key=RecordKey(RecordKind.SCOPE, scope),
                kinds=RELEVANT_KINDS,
                since=since,
                after=after,
                limit=JOURNAL_PAGE,
            )
            rows = await self._retry(f"read the journal of scope {scope}", lambda: self._store.journal(query))  # noqa: B023 - awaited at once
            entries += [row.entry for row in rows]
            if len(rows) < JOURNAL_PAGE:
                await self._fair_share.wait_turn()
                return entries
            after = rows[-1].position

    async def _retry(self, what: str, operation: Callable[[], Awaitable[R]]) -> R:
        what = f"{what} for campaign {self._owner.record.name}"
        return await repeat_until_saved(what, operation, (*SAVE_ERRORS, StoreError))
