"""Campaigns in memory: a started campaign, and a driver that carries it on by hand."""

from datetime import UTC, datetime, timedelta, tzinfo

from forewarn.core import operations
from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    AnnounceWave,
    CheckGate,
    ClearWave,
    Finding,
    WaveAnnounced,
)
from forewarn.core.campaign.commands import plan_progress, start
from forewarn.core.campaign.draft import CampaignDecision, CampaignDraft
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.plan import plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import (
    Campaign,
    Wave,
    WaveState,
)
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection
from forewarn.core.event import EventType
from forewarn.core.journal import Entry
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import Scope
from tests.core.sample_scopes import TEN, scope, vm

KERNEL = "0F0E0D0C-0B0A-4908-8706-050403020100"


CONDITIONS = RuleContext(policy=EMULATOR)
MINUTE = timedelta(minutes=1)


def zones(_: str) -> tzinfo:
    """Return the only zone that is needed."""
    return UTC


def web(name: str = "web") -> Scope:
    """Make a scope of two update domains with a VM each."""
    return scope(name, *(vm(f"{name}-{n}", domain=n, host=f"{name}-hv-{n}") for n in range(2)))


def campaign_over(*scopes: Scope, **policy: object) -> Campaign:
    """Return a campaign that was just started."""
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(**policy),  # type: ignore[arg-type]  # as each test says
    )
    planned = plan(spec, plan_scopes(scopes, spec, CONDITIONS, now=TEN), CONDITIONS, now=TEN, zones=zones)
    progress = [
        plan_progress([wave for wave in planned.waves if wave.scope == each.id], started_at=TEN, seen=0)
        for each in scopes
    ]
    return start(spec, planned, progress, id_=KERNEL, by="alice", now=TEN).record


class RolloutDriver:
    """Runs a campaign step by step, action by action, on scopes in memory."""

    def __init__(self, *scopes: Scope, record: Campaign | None = None, **policy: object) -> None:
        self.scopes: dict[str, Scope] = {each.id: each for each in scopes}
        self.load = FleetLoad()
        self.record = record or campaign_over(*scopes, **policy)
        self.index = CampaignIndex(self.record, CONDITIONS, zones)
        self.entries: list[Entry] = []
        self.decision = CampaignDecision(self.record)
        self.now = TEN

    def decide(self, now: datetime | None = None) -> list[Action]:
        """Observe everything, decide, and return the actions."""
        self.now = now or self.now
        for id_ in self.index.positions:
            self.load.update(id_, self.scopes.get(id_))
            observe(self.index, id_, self.scopes.get(id_))
        self.take(decide(self.record, self.index, self.load, now=self.now))
        return list(self.decision.actions)

    def take(self, decision: CampaignDecision) -> None:
        """Go on from a decision."""
        self.decision, self.record = decision, decision.record
        self.entries += decision.entries
        self.index.rebase(self.record)

    def report(self, action: Action, finding: Finding | None = None) -> None:
        """Report an action as finished."""
        self.take(apply_result(self.record, self.index, ActionResult(action, finding), now=self.now))

    def find(self, finding: Finding) -> None:
        """Apply a finding that no action requested."""
        self.report(CheckGate(finding.scope, 1), finding)

    def put_wave(self, scope: str, n: int, state: WaveState, at: datetime) -> None:
        """Bring a wave into another state."""
        draft = CampaignDraft(self.record)
        draft.put_wave(scope, n, state, at)
        self.take(draft.finish())

    def wave(self, scope: str, n: int) -> Wave:
        """Return a wave as the record has it."""
        return self.index.progress(scope).wave(n)

    def announce_next(self) -> AnnounceWave:
        """Decide, and create the events of the one wave to announce."""
        (action,) = self.decide()
        assert isinstance(action, AnnounceWave)
        self.announce(action)
        return action

    def announce(self, action: AnnounceWave) -> None:
        """Make the events of a wave."""
        value = self.scopes[action.scope]
        domain = self.wave(action.scope, action.n).update_domain
        names = tuple(each.name for each in value.roster if each.update_domain == domain)
        ask = ScheduleRequest(
            id=self.record.request(action.scope, action.n),
            type=EventType.REBOOT,
            vms=names,
            by="campaign:kernel",
            not_before=action.start,
            campaign=KERNEL,
            wave=action.n,
        )
        change = schedule(value, ask, CONDITIONS, now=self.now)
        assert change.scope is not None
        self.scopes[action.scope] = change.scope
        self.report(action, WaveAnnounced(action.scope, action.n, len(names), action.start, seen=0))

    def clear(self, action: Action) -> None:
        """Let events start."""
        assert isinstance(action, ClearWave)
        change = operations.clear(self.scopes[action.scope], action.events, CONDITIONS, now=self.now)
        assert change.scope is not None
        self.scopes[action.scope] = change.scope
        self.report(action)


def with_failures(scopes: list[Scope], why: str) -> Campaign:
    """Return a campaign over scopes of which every wave has failed."""
    draft = CampaignDraft(campaign_over(*scopes, halt_after=None))
    for each in scopes:
        draft.fail(each.id, 1, why, now=TEN)
    return draft.finish().record
