"""Schema of the agent's settings: defaults and lookup."""

from datetime import timedelta

import pytest

from forewarn.agent.settings.handlers import LogHandlerSettings
from forewarn.agent.settings.schema import AgentSettings, Rule
from forewarn.agent.settings.types import ApprovalMode
from forewarn.settings.types import ListenAddress


def test_agent_listens_on_loopback_and_its_leader_approves_by_default() -> None:
    settings = AgentSettings()
    assert settings.http.listen == ListenAddress("127.0.0.1", 8160)
    assert (settings.approval.policy, settings.approval.deputy_after) == (ApprovalMode.LEADER, timedelta(seconds=60))
    assert (settings.peers.secret_file, settings.handlers, settings.rules) == (None, (), ())


def test_rule_without_conditions_fits_every_event() -> None:
    assert Rule() == Rule(types=(), sources=(), at_least=None, at_most=None, description=None, handlers=())


def test_settings_of_a_handler_are_found_by_its_name() -> None:
    log = LogHandlerSettings(name="log")
    settings = AgentSettings(handlers=(LogHandlerSettings(name="other"), log))
    assert settings.handler("log") is log
    with pytest.raises(KeyError, match="web"):
        settings.handler("web")
