"""The scenarios that come with Forewarn, and those that people keep in files of their own."""

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
    return tuple(_scenario(Path(file.name).stem, file.read_text("utf-8")) for file in _files())


def shipped_names() -> tuple[str, ...]:
    """Return the names of the scenarios that come with Forewarn."""
    return tuple(Path(file.name).stem for file in _files())


def shipped_text(name: str) -> str:
    """Return the text of a scenario that comes with Forewarn."""
    return files(HOME).joinpath(f"{name}{SUFFIX}").read_text("utf-8")


def from_file(path: Path) -> Scenario:
    """Read a scenario from a file; raises OSError, UnicodeDecodeError and ScenarioError."""
    return _scenario(path.stem, path.read_text("utf-8"))


def _files() -> list[Path]:
    found = (Path(str(file)) for file in files(HOME).iterdir() if file.name.endswith(SUFFIX))
    return sorted(found, key=lambda file: file.name)


def _scenario(name: str, text: str) -> Scenario:
    return Scenario(name=name, text=text, story=read(text))
