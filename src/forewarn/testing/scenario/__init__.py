"""Stories of maintenance as text: a small language, and stages on which it is played. See `story` for its form."""

from forewarn.testing.scenario.core_stage import CoreStage
from forewarn.testing.scenario.stage import Played, Stage, Told, Unplayable, play
from forewarn.testing.scenario.story import Step, Story, read, retold
from forewarn.testing.scenario.words import ScenarioError

__all__ = [
    "CoreStage",
    "Played",
    "ScenarioError",
    "Stage",
    "Step",
    "Story",
    "Told",
    "Unplayable",
    "play",
    "read",
    "retold",
]
