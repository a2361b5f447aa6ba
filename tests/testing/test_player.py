"""The scenario player is loaded when it is first used."""

from forewarn.api import v1
from forewarn.testing.player import load_player
from tests.core.sample_scopes import TEN

MANUAL = v1.Clock(now=TEN, manual=True, next_change_at=None)


def test_player_lists_the_shipped_scenarios() -> None:
    assert "user-restart" in [scenario.name for scenario in load_player().scenarios(MANUAL)]
