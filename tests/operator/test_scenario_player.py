"""The port of the scenario player: the adapter of the test tools fits it."""

from forewarn.api import v1
from forewarn.operator.scenario_player import LoadPlayer, PreparedScenario
from forewarn.testing.player import load_player
from tests.core.sample_scopes import TEN

MANUAL = v1.Clock(now=TEN, manual=True, next_change_at=None)


def test_player_of_the_test_tools_fits_the_port() -> None:
    load: LoadPlayer = load_player
    prepared: PreparedScenario = load().prepare("user-restart", None)
    assert (prepared.step_count, prepared.problem(MANUAL)) == (12, None)
