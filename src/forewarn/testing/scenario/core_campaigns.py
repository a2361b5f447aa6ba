"""Campaigns of a scenario on the pure core: decided and carried out immediately, without a service."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from forewarn.api import v1
from forewarn.api.v1.campaign_spec import spec_from_request
from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    CheckGate,
    Finding,
    GateClosed,
    GateOpened,
)
from forewarn.core.campaign.commands import plan_progress, start
from forewarn.core.campaign.draft import CampaignDecision
from forewarn.core.campaign.history import RELEVANT_KINDS
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.plan import plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import Campaign
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.campaign.scope_rules import execute
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
        progress = [
            plan_progress(waves, started_at=now.replace(microsecond=0), seen=state.scopes[scope].entries)
            for scope, waves in planned.by_scope().items()
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
                index = campaign.index = observe(index, id_, state.scopes.get(id_))

    def _take(self, campaign: CoreCampaign, decision: CampaignDecision) -> None:
        campaign.record = decision.record
        self._state.add_campaign_entries(decision.record.name, decision.entries)

    def _execute(self, campaign: CoreCampaign, action: Action) -> Finding | None:
        state, record, now = self._state, campaign.record, self._state.now
        if isinstance(action, CheckGate) and self.is_gate_open:
            return GateOpened(action.scope, action.n, now)
        if isinstance(action, CheckGate):
            return GateClosed(action.scope, action.n, GATE_REASON)
        if action.scope not in state.scopes:
            return None
        entries = state.journals.get(action.scope, ())
        journal = (entry for entry in entries if entry.at >= record.started_at and entry.kind in RELEVANT_KINDS)
        with suppress(CoreError):  # the campaign decides again
            return state.apply(
                action.scope,
                lambda scope: execute(action, scope, record, campaign.index, journal, state.context, now=now),
            )
        return None


def _clock_time(time: timedelta) -> str:
    """Write a time of the scenario in the form of a campaign window; the days of a scenario begin at midnight."""
    minutes = time // timedelta(minutes=1) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"
