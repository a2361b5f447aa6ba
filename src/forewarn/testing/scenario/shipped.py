"""The scenarios that come with Forewarn, and others as scenarios: a story with a name."""

from importlib.resources import files
from pathlib import Path

import msgspec

from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.story import Story, read

SUFFIX = ".txt"
HOME = "forewarn.testing.scenarios"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A story with a name."""

    name: str
    text: str
    story: Story

    @property
    def title(self) -> str:
        """What the story shows, in the words of its first comment."""
        return self.story.fact

    @property
    def handler(self) -> str | None:
        """The VM whose part a program can play, if the story names one."""
        named = (step.command.vm for step in self.story.steps if isinstance(step.command, say.Handler))
        return next(named, None)


def shipped() -> tuple[Scenario, ...]:
    """Return the scenarios that come with Forewarn, by name."""
    return tuple(from_text(name, shipped_text(name)) for name in shipped_names())


def shipped_names() -> tuple[str, ...]:
    """Return the names of the scenarios that come with Forewarn."""
    found = (Path(file.name) for file in files(HOME).iterdir())
    return tuple(sorted(path.stem for path in found if path.suffix == SUFFIX))


def shipped_text(name: str) -> str:
    """Return the text of a scenario that comes with Forewarn."""
    return files(HOME).joinpath(f"{name}{SUFFIX}").read_text("utf-8")


def from_text(name: str, text: str) -> Scenario:
    """Read a scenario; raises ScenarioError."""
    return Scenario(name=name, text=text, story=read(text))
