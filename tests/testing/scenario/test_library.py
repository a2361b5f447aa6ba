"""Tests of the scenarios that ship with Forewarn: each runs as written, on the core and in a service."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.api import v1
from forewarn.testing import scenarios
from forewarn.testing.scenario import (
    CoreBackend,
    LiveBackend,
    Scenario,
    library_scenarios,
    parse,
    required_setup,
    run_script,
)
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, render, run_on_core, run_on_service

HOME = Path(scenarios.__file__).parent

SHIPPED = {scenario.name: scenario for scenario in library_scenarios()}

WITH_HANDLER = {
    "live-migration",
    "host-update",
    "user-restart",
    "hardware-failure",
    "predicted-failure",
    "eviction-30s",
    "eviction-8s",
    "terminate-on-scale-in",
    "cancelled-event",
    "two-events-at-once",
    "event-for-another-vm",
    "withdrawn-and-scheduled-again",
    "service-off-for-a-day",
    "storm-of-20",
}

CAMPAIGNS = {
    "campaign-abort",
    "campaign-gate-closes",
    "campaign-halt-and-retry",
    "campaign-limits",
    "campaign-windows",
}
"""Scenarios for operators, without a handler."""

each_shipped = pytest.mark.parametrize("scenario", SHIPPED.values(), ids=list(SHIPPED))


def test_all_scenarios_are_shipped() -> None:
    assert set(SHIPPED) == WITH_HANDLER | CAMPAIGNS == {file.stem for file in HOME.glob("*.txt")}


@each_shipped
def test_scenario_has_a_title_a_handler_and_expectations(scenario: Scenario) -> None:
    assert scenario.title.endswith(".")
    assert scenario.handler == (None if scenario.name in CAMPAIGNS else "web-0")
    assert any(step.expected for step in scenario.script.steps) or "expect" in scenario.text


@each_shipped
def test_scenario_runs_as_written_on_the_core(scenario: Scenario, rewrite: bool) -> None:
    played = list(run_script(scenario.script, CoreBackend()))
    if rewrite:
        (HOME / f"{scenario.name}.txt").write_text(render(scenario.script, played))
        return
    assert [each for each in played if not each.is_as_expected] == []
    assert render(scenario.script, played) == scenario.text


@each_shipped
def test_scenario_runs_as_written_in_a_service(scenario: Scenario) -> None:
    wanted = required_setup(scenario.script)
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, LiveBackend(service.api, setup=wanted) as backend:
        played = list(run_script(scenario.script, backend))
    assert [each for each in played if not each.is_as_expected] == []
    assert render(scenario.script, played) == scenario.text


@each_shipped
def test_every_line_gives_the_same_facts_on_both_backends(scenario: Scenario) -> None:
    """Lines without an arrow are compared, too."""
    text = "\n".join(
        f"{line} →" if line and not line.startswith("#") and "→" not in line else line
        for line in scenario.text.splitlines()
    )
    assert run_on_service(text) == run_on_core(text)


def test_scenarios_run_beside_a_fleet_and_clean_up() -> None:
    """The demonstration fleet also has a scope web."""
    with Forewarn() as service:
        before = list(service.api.scopes()), list(service.api.vms())
        for name in ("user-restart", "hardware-failure", "user-restart"):
            scenario = SHIPPED[name]
            with LiveBackend(service.api) as backend:
                assert [each for each in run_script(scenario.script, backend) if not each.is_as_expected] == []
        assert (list(service.api.scopes()), list(service.api.vms())) == before
        assert list(service.api.events()) == []


def test_campaign_runs_beside_another_of_the_same_name_and_is_aborted_at_the_end() -> None:
    text = (
        "platform automatic\nscope web availability-set\nvm web-0\n"
        "campaign kernel Reboot web vms_at_once 1 →\nvm web-1 →\nexpect kernel ended within 1h\n"
    )
    with Forewarn() as service:
        mine = {"name": "kernel", "type": "Reboot", "selection": {"scopes": ["web"]}}
        service.api.start_campaign(msgspec.convert(mine, v1.StartCampaign))
        with LiveBackend(service.api) as backend:
            assert render(parse(text), list(run_script(parse(text), backend))) == run_on_core(text)
        with LiveBackend(service.api) as backend:
            list(run_script(parse(text.rpartition("expect")[0]), backend))
        service.advance(timedelta(0))  # an aborted campaign ends when its started events have ended
        assert [campaign.name for campaign in service.api.campaigns(only_open=True)] == ["kernel"]
        assert {scope.id for scope in service.api.scopes()} == {"db-0", "web", "batch", "shop"}
