"""Where a story takes place. A stage does what a command says and tells what followed, as facts.

The pure core is one stage (`core_stage`), a running service another (`live_stage`): stories know nothing of either.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from forewarn.testing.scenario.commands import NOTHING, Command
from forewarn.testing.scenario.grammar import OPTIONS
from forewarn.testing.scenario.story import Step, Story, facts_of
from forewarn.testing.scenario.telling import Names
from forewarn.testing.scenario.words import ScenarioError, is_label

REFUSED = "refused "
"""How facts begin that tell of a refusal."""


class Unplayable(Exception):
    """A stage cannot do what the story says. `word` is what it stumbled over."""

    def __init__(self, problem: str, word: str) -> None:
        self.problem, self.word = problem, word
        super().__init__(f"{problem}: {word}")


def event_named(name: str, names: Names) -> str:
    """Return the id of an event that a story names by its label, or in full."""
    if not is_label(name):
        return name
    id_ = names.event(name)
    if id_ is None:
        raise Unplayable("no such event has appeared", name)
    return id_


class Told(msgspec.Struct, frozen=True):
    """What followed a command.

    `met`: what it expected has come. `judged`: it was the stage that did it, so what followed can be compared with the
    story; what is left to a program under examination is another's to judge.
    """

    facts: tuple[str, ...] = ()
    met: bool = True
    judged: bool = True


class Stage(Protocol):
    """What plays stories."""

    def agrees(self, told: Sequence[str], expected: Sequence[str]) -> bool:
        """Tell whether this followed as the story says, as exactly as can be said of this stage."""
        ...

    def longest_wait(self, command: Command, at: timedelta | None) -> timedelta:
        """Return for how long, in real time, whoever looks on may have to wait for this command."""
        ...

    def perform(self, command: Command, at: timedelta | None) -> Told:
        """Do it, at that time of the story if one is said, and tell what followed.

        A refusal is a fact, too. Raises Unplayable where the story names what there is not.
        """
        ...


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and what followed."""

    step: Step
    facts: tuple[str, ...]
    is_as_told: bool
    """Whether what followed is what the story says."""


def play(story: Story, stage: Stage, *, on_step: Callable[[Step], None] | None = None) -> Iterator[Played]:
    """Play a story step by step to its end, whatever follows; tell of each step before it is played."""
    for step in story.steps:
        if on_step is not None:
            on_step(step)
        try:
            told = stage.perform(step.command, step.at)
        except Unplayable as problem:
            raise _at_word(step, problem.problem, problem.word) from problem
        if step.expected is None and told.judged and told.facts and told.facts[0].startswith(REFUSED):
            raise refused(step, told.facts[0], "a line without an arrow must not be refused")
        facts = told.facts or (NOTHING,)
        agrees = step.expected is None or stage.agrees(facts_of("; ".join(facts)), step.expected)
        yield Played(step=step, facts=facts, is_as_told=not told.judged or (told.met and agrees))


def refused(step: Step, fact: str, problem: str) -> ScenarioError:
    """Say what is wrong with a step's being refused, and point at the name that the refusal is about."""
    code, _, sentence = fact.removeprefix(REFUSED).partition(": ")
    about = set(sentence.replace("/", " ").split())
    names = (word.text for word in step.words[1:] if word.quoted or word.text not in OPTIONS)
    meant = next((name for name in names if name.rpartition("/")[2] in about), step.words[0].text)
    return _at_word(step, f"{sentence} ({code}); {problem}", meant)


def _at_word(step: Step, problem: str, text: str) -> ScenarioError:
    word = next((word for word in step.words if word.text == text), step.words[0])
    return ScenarioError(problem, line=step.line, column=word.column, word=word.text)
