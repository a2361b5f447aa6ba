"""Lint a scenario: find all errors in words, names, times and arrows before it is run."""

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
"""The commands that make events."""

VM_NOT_FOUND = f"{REFUSED}{ScopeVmNotFound.code}: "


def find_problems(text: str) -> tuple[ScenarioError, ...]:
    """Return everything that is wrong, at most one error for each line, in the order of the lines.

    What only follows from another error is left out: names that a wrong line may have introduced, and labels of events
    behind a wrong line that may have made some.
    """
    script, errors = parse_valid_lines(text)
    problems = [*errors, *_Linter(script, errors).problems()]
    return tuple(sorted(problems, key=lambda error: (error.line, error.column)))


class _Linter:
    """A scenario while it is tried out on the rules."""

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
    """Tell whether a wrong line may have been meant to make events; what is no command may have been meant as any."""
    form = COMMAND_SYNTAX.get(words[0])
    return form is None or issubclass(form.command, EVENT_COMMANDS)


def _name_problem(played: StepResult) -> ScenarioError | None:
    """Find a VM that the scenario has not, unless the scenario says that this is refused."""
    expected = played.step.expected or ()
    fact = next((fact for fact in played.facts if fact.startswith(VM_NOT_FOUND)), None)
    if fact is None or any(each.startswith(REFUSED) for each in expected):
        return None
    return refusal_error(played.step, fact, "where that is meant, the arrow says `refused …`")


def _arrow_problem(step: Step) -> ScenarioError | None:
    """Find an arrow that says nothing, which no outcome agrees with."""
    if step.expected != ():
        return None
    problem = f"nothing is said behind the arrow: say what follows, or `{commands.NOTHING}`, or leave the arrow out"
    return ScenarioError(problem, line=step.line, column=step.words[-1].end + 1)
