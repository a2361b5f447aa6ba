"""Stories told on both stages: the pure core, and a running service of their own with real sockets."""

import re
from collections.abc import Sequence

from forewarn.testing.scenario import CoreStage, LiveStage, Played, Stage, Story, play, read, retold, wanted_by
from forewarn.testing.service import Forewarn

NO_FLEET: dict[str, object] = {"scopes": []}


def told(story: Story, played: Sequence[Played]) -> str:
    """The story as it went."""
    return retold(story, {each.step.line: each.facts for each in played})


def told_by_core(text: str) -> str:
    """Play a story on the pure core."""
    return _told(text, CoreStage())


def told_by_service(text: str) -> str:
    """Play a story in a service of its own, with the policy that the story wants."""
    wanted = wanted_by(read(text))
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, LiveStage(service.api, wanted=wanted) as stage:
        return _told(text, stage)


def _told(text: str, stage: Stage) -> str:
    story = read(text)
    return told(story, list(play(story, stage)))


def without_reasons(text: str) -> str:
    """The same, with the codes of refusals alone: the API says some of them in words of its own."""
    return re.sub(r"(?m)(refused [a-z-]+): .*$", r"\1", text)
