"""Where a story takes place. A stage does what a command says and tells what followed, as facts.

The pure core is one stage (`core_stage`); a running service can be another: stories know nothing of either.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

import msgspec

from forewarn.testing.scenario.commands import Command
from forewarn.testing.scenario.story import Step, Story, facts_of
from forewarn.testing.scenario.words import ScenarioError

NOTHING = "nothing"
REFUSED = "refused "
"""How facts begin that tell of a refusal."""


class Unplayable(Exception):
    """A stage cannot do what the story says. `word` is what it stumbled over."""

    def __init__(self, problem: str, word: str) -> None:
        self.problem, self.word = problem, word
        super().__init__(f"{problem}: {word}")


class Stage(Protocol):
    """What plays stories."""

    def perform(self, command: Command, at: timedelta | None) -> list[str]:
        """Do it, at that time of the story if one is said, and return what followed; nothing is an empty list.

        A refusal is a fact, too. Raises Unplayable where the story names what there is not.
        """
        ...


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and what followed."""

    step: Step
    facts: tuple[str, ...]

    @property
    def is_as_told(self) -> bool:
        """Whether what followed is what the story says."""
        return self.step.expected is None or facts_of("; ".join(self.facts)) == self.step.expected


def play(story: Story, stage: Stage) -> Iterator[Played]:
    """Play a story step by step to its end, whatever follows."""
    for step in story.steps:
        try:
            facts = stage.perform(step.command, step.at)
        except Unplayable as problem:
            raise _at_word(step, problem.problem, problem.word) from problem
        if step.expected is None and facts and facts[0].startswith(REFUSED):
            raise _at_word(step, f"{facts[0]} (a line without an arrow must not be refused)", step.words[0].text)
        yield Played(step=step, facts=tuple(facts) or (NOTHING,))


def _at_word(step: Step, problem: str, text: str) -> ScenarioError:
    word = next((word for word in step.words if word.text == text), step.words[0])
    return ScenarioError(problem, line=step.line, column=word.column, word=word.text)
