"""How long stories last, as far as they say it themselves."""

from datetime import timedelta

from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.story import Story
from forewarn.testing.scenario.world import BEGINNING


def longest(story: Story) -> timedelta:
    """Return how much time of a story passes at most: all of it, where nothing that is expected comes early."""
    time = BEGINNING
    for step in story.steps:
        time = max(time, step.at or time)
        match step.command:
            case say.Wait(time=more) | say.Expect(within=more):
                time += more
            case say.Tick(time=timedelta() as until):
                time = max(time, until)
            case _:
                pass
    return time - BEGINNING
