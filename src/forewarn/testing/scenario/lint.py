"""Lint a scenario: find all errors in words, names, times and arrows without running it."""

from collections.abc import Iterator

from forewarn.core.errors import ScopeVmNotFound
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_backend import CoreBackend
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX
from forewarn.testing.scenario.lexer import ScenarioError, is_label
from forewarn.testing.scenario.parser import Script, Step, parse_valid_lines
from forewarn.testing.scenario.runner import REFUSED, StepResult, refusal_error, run_script

EVENT_COMMANDS = (
    commands.Schedule,
    commands.Restart,
    commands.Redeploy,
    commands.Delete,
    commands.Evict,
    commands.Fail,
    commands.Predict,
)
"""The commands that create events."""

VM_NOT_FOUND = f"{REFUSED}{ScopeVmNotFound.code}: "


def find_problems(text: str) -> tuple[ScenarioError, ...]:
    """Return all errors, at most one per line, in the order of the lines.

    Errors that another error may cause are left out: names that an invalid line may define, and labels of events
    after an invalid line that may create events.
    """
    script, errors = parse_valid_lines(text)
    problems = [*errors, *_Linter(script, errors).problems()]
    return tuple(sorted(problems, key=lambda error: (error.line, error.column)))


class _Linter:
    """Runs the valid lines of a scenario on the core and collects errors."""

    def __init__(self, script: Script, errors: tuple[ScenarioError, ...]) -> None:
        self._script = script
        self._backend = CoreBackend()
        self._wrong_lines = {
            error.line: script.lines[error.line - 1] for error in errors if error.line <= len(script.lines)
        }

    def problems(self) -> Iterator[ScenarioError]:
        for step in self._script.steps:
            error = self._problem(step)
            if error is not None and not self._is_caused_by_another(error):
                yield error
            if error is not None:
                self._wrong_lines[step.line] = step.text

    def _problem(self, step: Step) -> ScenarioError | None:
        try:
            (played,) = run_script(Script(lines=(), steps=(step,)), self._backend)
        except ScenarioError as error:
            return error
        return _name_problem(played) or _arrow_problem(step)

    def _is_caused_by_another(self, error: ScenarioError) -> bool:
        before = [line.split() for number, line in self._wrong_lines.items() if number < error.line]
        if is_label(error.word):
            return any(_may_make_events(words) for words in before)
        if before and not self._backend.state.scopes:
            return True
        name = error.word.rpartition("/")[2]
        return any(name in words[1:] for words in before)


def _may_make_events(words: list[str]) -> bool:
    """Return whether an invalid line may be meant to create events; an unknown command can be any command."""
    form = COMMAND_SYNTAX.get(words[0])
    return form is None or issubclass(form.command, EVENT_COMMANDS)


def _name_problem(played: StepResult) -> ScenarioError | None:
    """Return an error for an unknown VM, unless the scenario expects the refusal."""
    expected = played.step.expected or ()
    fact = next((fact for fact in played.facts if fact.startswith(VM_NOT_FOUND)), None)
    if fact is None or any(each.startswith(REFUSED) for each in expected):
        return None
    return refusal_error(played.step, fact, "to expect the refusal, write `refused …` after the arrow")


def _arrow_problem(step: Step) -> ScenarioError | None:
    """Return an error for an arrow without facts, which no result can match."""
    if step.expected != ():
        return None
    problem = f"no fact after the arrow: write the expected facts, or `{commands.NOTHING}`, or remove the arrow"
    return ScenarioError(problem, line=step.line, column=step.words[-1].end + 1)
