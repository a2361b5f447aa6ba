"""Campaigns of a scenario on the pure core: decided and carried out immediately, without a service."""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from forewarn.api import v1
from forewarn.api.v1.campaign_spec import spec_from_request
from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    Finding,
    GateClosed,
    GateOpened,
    ReadOutcome,
    RetryEvent,
    WaveEnded,
    WaveRefused,
    WithdrawEvent,
)
from forewarn.core.campaign.commands import plan_progress, start
from forewarn.core.campaign.draft import CampaignDecision
from forewarn.core.campaign.history import RELEVANT_KINDS, ScopeHistory, read_history
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.plan import PlannedWave, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import Campaign
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.campaign.scope_rules import announce_wave, clear_wave, close_scope, retry_event, withdraw_event
from forewarn.core.errors import CoreError, ResourceExists
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.campaign_request import campaign_request
from forewarn.testing.scenario.core_state import CoreState, guid
from forewarn.testing.scenario.runner import InvalidCommand

GATE = "health"
"""The name of a scenario's gate."""

GATE_REASON = "the gate returned 503, expected 200"
"""The reason of a closed gate, the same as in a service."""


class CoreCampaign:
    """One campaign: its record, and the index and time derived from it."""

    def __init__(self, record: Campaign, state: CoreState) -> None:
        self.record = record
        self.index = CampaignIndex(record, state.context, find_zone)
        self.wake_at: datetime | None = None


class CoreCampaigns:
    """All campaigns of a scenario."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._campaigns: dict[str, CoreCampaign] = {}
        self._load = FleetLoad()
        self.is_gate_open = True

    def start(self, command: commands.StartCampaign) -> None:
        """Plan a campaign and start it."""
        state, now = self._state, self._state.now
        known = self._campaigns.get(command.campaign)
        if known is not None and not known.record.state.is_over:
            raise ResourceExists(f"a campaign {command.campaign} that is not over")
        windows = [(_clock_time(window_start), _clock_time(window_end)) for window_start, window_end in command.windows]
        scopes = [state.scope(name) for name in command.scopes]
        request = campaign_request(command, name=command.campaign, scopes=scopes, windows=windows, gate=GATE)
        spec = spec_from_request(msgspec.convert(request, v1.CampaignRequest))
        fleet = plan_scopes(state.scopes.values(), spec, state.context, now=now)
        planned = plan(spec, fleet, state.context, now=now, zones=find_zone)
        waves: dict[str, list[PlannedWave]] = {}
        for wave in planned.waves:
            waves.setdefault(wave.scope, []).append(wave)
        progress = [
            plan_progress(each, started_at=now.replace(microsecond=0), seen=state.scopes[scope].entries)
            for scope, each in waves.items()
        ]
        id_ = guid("campaign", command.campaign, str(now))
        decision = start(
            spec,
            planned,
            progress,
            id_=id_,
            by=command.by,
            why=command.why,
            now=now,
            unannounced=command.unannounced,
        )
        state.has_campaigns = True
        campaign = self._campaigns[command.campaign] = CoreCampaign(decision.record, state)
        self._take(campaign, decision)

    def apply(self, name: str, rule: Callable[[Campaign], CampaignDecision]) -> None:
        """Apply an operator's command to a campaign."""
        if name not in self._campaigns:
            raise InvalidCommand("unknown campaign", name)
        campaign = self._campaigns[name]
        self._take(campaign, rule(campaign.record))

    def next_moment(self) -> datetime | None:
        """Return the next time at which time alone may change a campaign."""
        wakes = [each.wake_at for each in self._campaigns.values() if not each.record.state.is_over]
        return min((at for at in wakes if at is not None), default=None)

    def run(self) -> None:
        """Run every campaign until nothing more is due at the current time."""
        while sum(self._step(campaign) for campaign in self._campaigns.values()):
            pass

    def _step(self, campaign: CoreCampaign) -> bool:
        """Observe, decide, execute the actions and apply their results; return whether anything happened."""
        if campaign.record.state.is_over:
            return False
        state, now = self._state, self._state.now
        self._observe(campaign)
        decision = decide(campaign.record, campaign.index, self._load, now=now)
        self._take(campaign, decision)
        campaign.wake_at = decision.wake_at
        for action in decision.actions:
            result = ActionResult(action, self._execute(campaign, action))
            self._take(campaign, apply_result(campaign.record, campaign.index, result, now=state.now))
        return bool(decision.actions or decision.entries or decision.has_more)

    def _observe(self, campaign: CoreCampaign) -> None:
        state, index = self._state, campaign.index
        if (index.context.policy, index.context.hold) != (state.context.policy, state.context.hold):
            index = campaign.index = CampaignIndex(campaign.record, state.context, find_zone, pending=index.pending)
        index.rebase(campaign.record)
        for id_ in {*index.positions, *state.scopes}:
            self._load.update(id_, state.scopes.get(id_))
        for id_ in index.positions:
            if id_ in index.stale or index.scopes[id_] is not state.scopes.get(id_):
                observe(index, id_, state.scopes.get(id_))

    def _take(self, campaign: CoreCampaign, decision: CampaignDecision) -> None:
        campaign.record = decision.record
        self._state.add_campaign_entries(decision.record.name, decision.entries)

    def _execute(self, campaign: CoreCampaign, action: Action) -> Finding | None:
        try:
            return self._try_execute(campaign, action)
        except CoreError as refusal:
            return WaveRefused(action.scope, action.n, str(refusal)) if isinstance(action, AnnounceWave) else None

    def _try_execute(self, campaign: CoreCampaign, action: Action) -> Finding | None:
        state, record, index = self._state, campaign.record, campaign.index
        now, context = state.now, state.context
        if isinstance(action, CheckGate):
            if self.is_gate_open:
                return GateOpened(action.scope, action.n, now)
            return GateClosed(action.scope, action.n, GATE_REASON)
        if action.scope not in state.scopes:
            return None
        match action:
            case AnnounceWave(scope):
                history = self._history(campaign, scope)
                return state.apply(
                    scope, lambda value: announce_wave(value, action, record, index, history, context, now=now)
                )
            case ClearWave(scope):
                state.apply(scope, lambda value: clear_wave(value, action, record, index, context, now=now))
            case WithdrawEvent(scope):
                state.apply(scope, lambda value: withdraw_event(value, action, context, now=now))
            case RetryEvent(scope):
                state.apply(scope, lambda value: retry_event(value, action, now=now))
            case ReadOutcome(scope, n):
                return WaveEnded(scope, n, self._history(campaign, scope).outcomes.get(n, ()))
            case CloseScope(scope):
                return close_scope(scope, state.scopes[scope], index, self._history(campaign, scope))
        return None

    def _history(self, campaign: CoreCampaign, scope: str) -> ScopeHistory:
        since = campaign.record.started_at
        entries = [
            entry for entry in self._state.journals.get(scope, ()) if entry.at >= since and entry.kind in RELEVANT_KINDS
        ]
        return read_history(entries, campaign.record.id, seen=campaign.index.progress(scope).seen)


def _clock_time(time: timedelta) -> str:
    """Write a time of the scenario in the form of a campaign window; the days of a scenario begin at midnight."""
    minutes = time // timedelta(minutes=1) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"
