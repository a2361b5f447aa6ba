"""Tests of campaigns on the core: start, operator commands, the gate, and the next time that matters."""

from datetime import timedelta

import pytest

from forewarn.core.campaign.commands import abort, pause
from forewarn.core.change import Change
from forewarn.core.errors import ResourceExists
from forewarn.testing.scenario import InvalidCommand, commands, parse
from forewarn.testing.scenario.core_campaigns import GATE_REASON, CoreCampaigns
from forewarn.testing.scenario.core_clock import SimulatedClock
from forewarn.testing.scenario.core_state import CoreState
from tests.core.sample_scopes import scope, vm


def campaign(line: str) -> commands.StartCampaign:
    (step,) = parse(line).steps
    assert isinstance(step.command, commands.StartCampaign)
    return step.command


KERNEL = campaign("campaign kernel Reboot web gap 20m expected 5m")
GATED = campaign("campaign kernel Reboot web gap 20m expected 5m gate gate_patience 10m")


def two_domains() -> tuple[CoreState, CoreCampaigns]:
    state = CoreState()
    state.save("web", Change(scope("web", vm("web-0"), vm("web-1", domain=1)), (), None))
    return state, CoreCampaigns(state)


def facts(state: CoreState) -> list[str]:
    """Return the facts since the last call."""
    state.tell()
    found, state.facts = state.facts, []
    return found


def test_started_campaign_announces_its_first_wave() -> None:
    state, campaigns = two_domains()
    assert (campaigns.next_moment(), state.has_campaigns) == (None, False)
    campaigns.start(KERNEL)
    campaigns.run()
    assert state.has_campaigns
    assert facts(state) == [
        "E1 Scheduled web-0 not_before 10:15 by campaign:kernel, incarnation 2",
        "kernel began with 2 waves",
        "kernel wave 1 of web announced not_before 10:15",
    ]
    campaigns.run()
    assert facts(state) == []


def test_open_campaign_cannot_be_started_again() -> None:
    state, campaigns = two_domains()
    campaigns.start(KERNEL)
    with pytest.raises(ResourceExists, match="a campaign kernel that is not over"):
        campaigns.start(KERNEL)
    campaigns.apply("kernel", lambda record: abort(record, by="operator", why="wrong kernel", now=state.now))
    campaigns.run()
    campaigns.start(KERNEL)


def test_campaign_of_an_unknown_scope_is_invalid() -> None:
    _, campaigns = two_domains()
    with pytest.raises(InvalidCommand, match="unknown scope: shop"):
        campaigns.start(campaign("campaign kernel Reboot shop"))


def test_unknown_campaign_is_invalid() -> None:
    state, campaigns = two_domains()
    with pytest.raises(InvalidCommand, match="unknown campaign: firmware"):
        campaigns.apply("firmware", lambda record: pause(record, by="operator", why="", now=state.now))


def test_aborted_campaign_cancels_its_event_and_needs_no_time() -> None:
    state, campaigns = two_domains()
    campaigns.start(KERNEL)
    campaigns.run()
    facts(state)
    campaigns.apply("kernel", lambda record: abort(record, by="operator", why="wrong kernel", now=state.now))
    campaigns.run()
    assert facts(state) == [
        "E1 Canceled (wrong kernel), incarnation 3",
        "kernel aborted (wrong kernel)",
        "kernel ended Aborted",
        "kernel wave 1 of web left (its events were canceled)",
    ]
    assert campaigns.next_moment() is None


def test_window_decides_the_next_moment() -> None:
    state, campaigns = two_domains()
    campaigns.start(campaign("campaign kernel Reboot web windows 22:00-23:00 gap 20m expected 5m"))
    campaigns.run()
    assert facts(state) == ["kernel began with 2 waves"]
    assert campaigns.next_moment() == state.names.moment(timedelta(hours=21, minutes=45))


def test_closed_gate_delays_the_next_wave() -> None:
    state, campaigns = two_domains()
    clock = SimulatedClock(state, campaigns)
    clock.use_automatic_platform(timedelta(minutes=1))
    campaigns.start(GATED)
    clock.begin_work()
    clock.advance_to(state.names.moment(timedelta(hours=10, minutes=20)))
    campaigns.is_gate_open = False
    facts(state)
    clock.advance_to(state.names.moment(timedelta(hours=10, minutes=40)))
    found = facts(state)
    assert [fact for fact in found if fact.startswith("kernel gate shut")] == [f"kernel gate shut ({GATE_REASON})"]
    assert "kernel wave 2 of web cleared" not in found
