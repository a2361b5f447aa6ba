"""Library of the scenarios that ship with Forewarn."""

from importlib.resources import files
from pathlib import Path

import msgspec

from forewarn.testing.scenario import commands
from forewarn.testing.scenario.parser import Script, parse

SUFFIX = ".txt"
SCENARIO_PACKAGE = "forewarn.testing.scenarios"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario with a name."""

    name: str
    text: str
    script: Script

    @property
    def title(self) -> str:
        """The title: the comment at the beginning of the scenario."""
        return self.script.title

    @property
    def handler(self) -> str | None:
        """The VM that a program can act as, if the scenario names one."""
        named = (step.command.vm for step in self.script.steps if isinstance(step.command, commands.Handler))
        return next(named, None)


def library_scenarios() -> tuple[Scenario, ...]:
    """Return the scenarios that ship with Forewarn, sorted by name."""
    return tuple(parse_scenario(name, library_text(name)) for name in library_names())


def library_names() -> tuple[str, ...]:
    """Return the names of the scenarios that ship with Forewarn."""
    found = (Path(file.name) for file in files(SCENARIO_PACKAGE).iterdir())
    return tuple(sorted(path.stem for path in found if path.suffix == SUFFIX))


def library_text(name: str) -> str:
    """Return the text of a scenario that ships with Forewarn."""
    return files(SCENARIO_PACKAGE).joinpath(f"{name}{SUFFIX}").read_text("utf-8")


def parse_scenario(name: str, text: str) -> Scenario:
    """Parse a scenario. Raises ScenarioError."""
    return Scenario(name=name, text=text, script=parse(text))
