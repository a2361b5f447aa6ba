"""A simulated campaign: the real rules announce, clear and close every wave of its scopes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.record import CampaignState
from forewarn.core.change import Change
from forewarn.core.event import State
from forewarn.core.impact import Done
from forewarn.core.impact_lifecycle import begin, impacts_to_begin, settle
from forewarn.core.lifecycle import tick
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.testing.simulation.campaign import R, SimulatedCampaign
from forewarn.testing.simulation.layout import FleetLayout, scope_name

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = RuleContext()


class Scopes:
    """Scopes that a campaign changes, without hosts and guests."""

    def __init__(self, scopes: dict[str, Scope]) -> None:
        self.scopes = scopes
        self.load = FleetLoad()
        self.saved = 0
        self.campaign: SimulatedCampaign | None = None

    def apply(self, scope: str, rule: Callable[[Scope], Change[R]]) -> R:
        change = rule(self.scopes[scope])
        assert change.scope is not None
        self.scopes[scope] = change.scope
        self.load.update(scope, change.scope)
        if self.campaign is not None:
            self.campaign.on_change(scope, change.entries)
        return change.result

    def find(self, scope: str) -> Scope | None:
        return self.scopes.get(scope)

    def save_campaign(self, size: int, lines: int) -> None:
        assert size > 0
        assert lines >= 0
        self.saved += 1


def test_every_wave_is_carried_out() -> None:
    layout = FleetLayout(vms=110, cell=0, seed=1)
    scopes = {scope_name(n): layout.create_scope(n, NOW) for n in range(layout.scopes)}
    fleet = Scopes(dict(scopes))
    fleet.campaign = campaign = SimulatedCampaign(
        "kernel", scopes, fleet, fleet.load, id_="A0000000-0000-4000-8000-000000000001", now=NOW
    )
    assert campaign.waves == 5 + 6 * 5
    rebooted: set[str] = set()
    now = NOW
    for _ in range(3_000):
        if campaign.record.state.is_over:
            break
        now += timedelta(seconds=30)
        for name in list(fleet.scopes):
            fleet.apply(name, lambda scope: tick(scope, CONTEXT, now=now, seen_at=now))  # noqa: B023 - applied at once
            started = {e.update_domain for e in fleet.scopes[name].events if e.state is State.STARTED}
            assert len(started) <= 1
            for event, impact in impacts_to_begin(fleet.scopes[name], now=now):
                vm = impact.vm
                fleet.apply(name, lambda scope: begin(scope, event.id, vm, now=now))  # noqa: B023 - applied at once
                fleet.apply(name, lambda scope: settle(scope, event.id, vm, Done(), CONTEXT, now=now))  # noqa: B023
                rebooted.add(vm)
        campaign.step(now)
    assert campaign.record.state is CampaignState.COMPLETED
    assert len(rebooted) == 110
    assert not campaign.needs_step
    assert fleet.saved >= campaign.waves
