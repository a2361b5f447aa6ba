"""Validation across the agent's settings: combinations that are not allowed."""

from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.settings.handlers import (
    ExecSettings,
    HandlerSettings,
    HaproxySettings,
    LogHandlerSettings,
    NotifySettings,
    ReadinessSettings,
    SystemdSettings,
    WebhookSettings,
)
from forewarn.agent.settings.schema import AgentSettings, HttpSettings, PeersSettings, Rule
from forewarn.agent.settings.types import Address, RecoverMode
from forewarn.agent.settings.validation import find_problems, validate
from forewarn.settings.errors import SettingsConflict
from forewarn.settings.file_reader import read_toml
from forewarn.settings.types import ListenAddress

FILE = Path("/f")
PEERS = (("web_1", Address("h", 1)),)


@pytest.mark.parametrize(
    ("handler", "key"),
    [
        (ExecSettings(name="x"), "prepare"),
        (ExecSettings(name="x", prepare=("/a",), hooks=FILE), "hooks"),
        (ExecSettings(name="x", hooks=FILE, recovery=RecoverMode.AT_MOST_ONCE), "recovery"),
        (SystemdSettings(name="x"), "units"),
        (HaproxySettings(name="x"), "servers"),
        (HaproxySettings(name="x", servers=("b/s",), wait=timedelta(seconds=30)), "wait"),
        (ReadinessSettings(name="x", wait=timedelta(seconds=31)), "wait"),
        (WebhookSettings(name="x"), "url"),
        (WebhookSettings(name="x", url="http://h", url_file=FILE), "url"),
        (NotifySettings(name="x"), "urls_file"),
    ],
)
def test_handler_that_cannot_work_is_refused_by_its_key(handler: HandlerSettings, key: str) -> None:
    (problem,) = find_problems(AgentSettings(handlers=(handler,)))
    assert problem.split(" ")[0] == f"handlers.x.{key}"


LOG = LogHandlerSettings(name="log")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (AgentSettings(handlers=(LOG,), rules=(Rule(handlers=("log",)), Rule(handlers=("web",)))), "rules[1].handlers"),
        (
            AgentSettings(rules=(Rule(at_least=timedelta(seconds=2), at_most=timedelta(seconds=1)),)),
            "rules[0].at_least",
        ),
        (AgentSettings(peers=PeersSettings(agents=PEERS)), "peers.agents"),
        (AgentSettings(peers=PeersSettings(secret_file=FILE), http=HttpSettings(listen=None)), "http.listen"),
        (
            AgentSettings(handlers=(ReadinessSettings(name="x", listen=ListenAddress("127.0.0.1", 8160)),)),
            "handlers.x.listen",
        ),
        (AgentSettings(handlers=tuple(ReadinessSettings(name=name) for name in "ab")), "handlers.b.listen"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_their_key(settings: AgentSettings, key: str) -> None:
    (problem,) = find_problems(settings)
    assert problem.split(" ")[0] == key


@pytest.mark.parametrize(
    "settings",
    [
        AgentSettings(),
        AgentSettings(handlers=(ExecSettings(name="x", recover=("/a",)), ExecSettings(name="y", hooks=FILE))),
        AgentSettings(peers=PeersSettings(secret_file=FILE, agents=PEERS)),
        AgentSettings(handlers=tuple(ReadinessSettings(name=n, listen=ListenAddress("127.0.0.1", 0)) for n in "ab")),
        AgentSettings(rules=(Rule(at_least=timedelta(seconds=1), at_most=timedelta(seconds=1)),)),
    ],
    ids=["defaults", "programs", "peers", "any free port", "one duration"],
)
def test_settings_that_go_together_are_accepted(settings: AgentSettings) -> None:
    assert list(find_problems(settings)) == []


def test_problem_is_reported_with_the_line_of_its_key() -> None:
    document = read_toml("\n[handlers.x]\nkind = 'systemd'\n", file="agent.toml")
    with pytest.raises(SettingsConflict, match=r"^agent.toml:2: handlers\.x\.units "):
        validate(AgentSettings(handlers=(SystemdSettings(name="x"),)), {}, document)
