"""Finding everything that is wrong with a story before it is played anywhere: words, names, times and arrows."""

from collections.abc import Iterator

from forewarn.core.errors import ScopeVmNotFound
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.core_stage import CoreStage
from forewarn.testing.scenario.grammar import FORMS
from forewarn.testing.scenario.stage import REFUSED, Played, play, refused
from forewarn.testing.scenario.story import Step, Story, understood
from forewarn.testing.scenario.words import ScenarioError, is_label

MAKING = (say.Schedule, say.Restart, say.Redeploy, say.Delete, say.Evict, say.Fail, say.Predict)
"""The commands that make events."""

UNKNOWN_VM = f"{REFUSED}{ScopeVmNotFound.code}: "


def problems_in(text: str) -> tuple[ScenarioError, ...]:
    """Return everything that is wrong, at most one error for each line, in the order of the lines.

    What only follows from another error is left out: names that a wrong line may have introduced, and labels of events
    behind a wrong line that may have made some.
    """
    story, errors = understood(text)
    wrong = [*errors, *_Checking(story, errors).problems()]
    return tuple(sorted(wrong, key=lambda error: (error.line, error.column)))


class _Checking:
    """A story while it is tried out on the rules."""

    def __init__(self, story: Story, errors: tuple[ScenarioError, ...]) -> None:
        self._story = story
        self._stage = CoreStage()
        self._wrong_lines = {
            error.line: story.lines[error.line - 1] for error in errors if error.line <= len(story.lines)
        }

    def problems(self) -> Iterator[ScenarioError]:
        for step in self._story.steps:
            error = self._problem(step)
            if error is not None and not self._follows_from_another(error):
                yield error
            if error is not None:
                self._wrong_lines[step.line] = step.text

    def _problem(self, step: Step) -> ScenarioError | None:
        try:
            (played,) = play(Story(lines=(), steps=(step,)), self._stage)
        except ScenarioError as error:
            return error
        return _of_names(played) or _of_arrow(step)

    def _follows_from_another(self, error: ScenarioError) -> bool:
        before = [line.split() for number, line in self._wrong_lines.items() if number < error.line]
        if is_label(error.word):
            return any(_may_make_events(words) for words in before)
        if before and not self._stage.world.scopes:
            return True
        name = error.word.rpartition("/")[2]
        return any(name in words[1:] for words in before)


def _may_make_events(words: list[str]) -> bool:
    """Tell whether a wrong line may have been meant to make events; what is no command may have been meant as any."""
    form = FORMS.get(words[0])
    return form is None or issubclass(form.command, MAKING)


def _of_names(played: Played) -> ScenarioError | None:
    """Find a VM that the story has not, unless the story says that this is refused."""
    expected = played.step.expected or ()
    fact = next((fact for fact in played.facts if fact.startswith(UNKNOWN_VM)), None)
    if fact is None or any(each.startswith(REFUSED) for each in expected):
        return None
    return refused(played.step, fact, "where that is meant, the arrow says `refused …`")


def _of_arrow(step: Step) -> ScenarioError | None:
    """Find an arrow that says nothing, which no outcome agrees with."""
    if step.expected != ():
        return None
    problem = f"nothing is said behind the arrow: say what follows, or `{say.NOTHING}`, or leave the arrow out"
    return ScenarioError(problem, line=step.line, column=step.words[-1].end + 1)
