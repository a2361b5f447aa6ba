"""Loads the scenario player of an emulator when it is first used: a service starts without its modules."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.operator.scenario_player import ScenarioPlayer


def load_player() -> "ScenarioPlayer":
    """Return the player."""
    from forewarn.testing.scenario.library_player import LibraryPlayer

    return LibraryPlayer()
