"""Run a script step by step on a backend, and compare the resulting facts with the expected ones.

Backends: the pure core (`core_backend`) and a running service (`live_backend`)."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.testing.scenario.commands import NOTHING, Command
from forewarn.testing.scenario.grammar import OPTIONS
from forewarn.testing.scenario.lexer import ScenarioError, is_label
from forewarn.testing.scenario.parser import Script, Step, split_facts
from forewarn.testing.scenario.render import Names

REFUSED = "refused "
"""The beginning of the fact of a refusal."""


class InvalidCommand(BaseError):
    """A backend cannot execute a command of the scenario. `word` is the word that it cannot resolve."""

    template = "{problem}: {word}"
    problem: str
    word: str


def event_id(name: str, names: Names) -> str:
    """Return the id of an event, given by its label or its id."""
    if not is_label(name):
        return name
    id_ = names.event(name)
    if id_ is None:
        raise InvalidCommand("no event has this label yet", name)
    return id_


class CommandResult(msgspec.Struct, frozen=True):
    """The result of a command.

    `is_met`: the expected fact has occurred. `is_judged`: the backend executed the command itself, so its facts are
    compared with the scenario; False if a program under test acts as the handler.
    """

    facts: tuple[str, ...] = ()
    is_met: bool = True
    is_judged: bool = True


class Backend(Protocol):
    """Executes the commands of a scenario."""

    def matches(self, facts: Sequence[str], expected: Sequence[str]) -> bool:
        """Return whether the facts match the expected ones, as exactly as this backend can compare them."""
        ...

    def max_wait(self, command: Command, at: timedelta | None) -> timedelta:
        """Return how long this command may take, in real time."""
        ...

    def execute(self, command: Command, at: timedelta | None) -> CommandResult:
        """Execute the command, at the given time of the scenario if any, and return the result.

        A refusal is a fact, too. Raises InvalidCommand if the scenario names something that does not exist.
        """
        ...


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its facts."""

    step: Step
    facts: tuple[str, ...]
    is_as_expected: bool
    """Whether the facts are as the scenario expects."""


def run_script(
    script: Script, backend: Backend, *, on_step: Callable[[Step], None] | None = None
) -> Iterator[StepResult]:
    """Run all steps of a scenario, even after unexpected facts; `on_step` is called before each step."""
    for step in script.steps:
        if on_step is not None:
            on_step(step)
        try:
            result = backend.execute(step.command, step.at)
        except InvalidCommand as problem:
            raise _error_at(step, problem.problem, problem.word) from problem
        if step.expected is None and result.is_judged and result.facts and result.facts[0].startswith(REFUSED):
            raise refusal_error(step, result.facts[0], "a line without an arrow must not be refused")
        facts = result.facts or (NOTHING,)
        is_match = step.expected is None or backend.matches(split_facts("; ".join(facts)), step.expected)
        yield StepResult(step=step, facts=facts, is_as_expected=not result.is_judged or (result.is_met and is_match))


def refusal_error(step: Step, fact: str, problem: str) -> ScenarioError:
    """Return the error for a refused step, at the position of the name that the refusal is about."""
    code, _, sentence = fact.removeprefix(REFUSED).partition(": ")
    about = set(sentence.replace("/", " ").split())
    names = (word.text for word in step.words[1:] if word.quoted or word.text not in OPTIONS)
    target = next((name for name in names if name.rpartition("/")[2] in about), step.words[0].text)
    return _error_at(step, f"{sentence} ({code}); {problem}", target)


def _error_at(step: Step, problem: str, text: str) -> ScenarioError:
    word = next((word for word in step.words if word.text == text), step.words[0])
    return ScenarioError(problem, line=step.line, column=word.column, word=word.text)
