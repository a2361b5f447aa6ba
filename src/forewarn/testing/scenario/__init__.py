"""Stories of maintenance as text: a small language, and stages on which it is played. See `story` for its form."""

from forewarn.testing.scenario.bell import Cancelled
from forewarn.testing.scenario.casting import Program
from forewarn.testing.scenario.checking import problems_in
from forewarn.testing.scenario.commands import NOTHING, Expect
from forewarn.testing.scenario.core_stage import CoreStage
from forewarn.testing.scenario.lasting import longest
from forewarn.testing.scenario.live_stage import LiveStage, NotAnEmulator
from forewarn.testing.scenario.policies import Wanted, wanted_by
from forewarn.testing.scenario.shipped import Scenario, from_text, shipped, shipped_names, shipped_text
from forewarn.testing.scenario.stage import Played, Stage, Told, Unplayable, play
from forewarn.testing.scenario.story import Step, Story, errors_in, read, retold
from forewarn.testing.scenario.words import ScenarioError

__all__ = [
    "NOTHING",
    "Cancelled",
    "CoreStage",
    "Expect",
    "LiveStage",
    "NotAnEmulator",
    "Played",
    "Program",
    "Scenario",
    "ScenarioError",
    "Stage",
    "Step",
    "Story",
    "Told",
    "Unplayable",
    "Wanted",
    "errors_in",
    "from_text",
    "longest",
    "play",
    "problems_in",
    "read",
    "retold",
    "shipped",
    "shipped_names",
    "shipped_text",
    "wanted_by",
]
