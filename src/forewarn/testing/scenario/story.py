"""A story as text: comments, commands, and what must follow each. Reading it, and writing it down anew.

    # An event starts at its not_before, not earlier.
    scope web availability-set
    vm web_0
    schedule Reboot web_0 at 10:00   →  E1 Scheduled not_before 10:15, incarnation 2
    tick 10:14:59                    →  nothing

A line without an arrow is there for its effect and must not be refused. Further lines that begin with an arrow
belong to the command above them. `->` is read as an arrow, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from forewarn.testing.scenario.commands import Command
from forewarn.testing.scenario.grammar import read_command
from forewarn.testing.scenario.words import ARROWS, ScenarioError, Word, part

BYTE_ORDER_MARK = "\ufeff"
"""What some editors put before a text, unseen."""

LONGEST_STORY = 10_000
"""Lines."""

WIDTH = 120
WIDEST_COMMAND = 56
"""How long lines may get, and how far to the right the longest command pushes the arrows of a paragraph."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a story. `expected` is what must follow, fact by fact; None where the story does not say."""

    line: int
    last_line: int
    words: tuple[Word, ...]
    text: str
    command: Command
    at: timedelta | None = None
    expected: tuple[str, ...] | None = None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A story that has been read."""

    lines: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def fact(self) -> str:
        """What the story shows: the comment at its beginning."""
        header: list[str] = []
        for line in self.lines:
            if not line.startswith("#"):
                break
            header.append(line.lstrip("#").strip())
        return " ".join(header)


def read(text: str) -> Story:
    """Read a story; a ScenarioError says where it cannot be understood, and what may stand there."""
    story, errors = _read(text)
    if errors:
        raise errors[0]
    return story


def errors_in(text: str) -> tuple[ScenarioError, ...]:
    """Return everything in a story that cannot be understood, at most one error for each line."""
    return understood(text)[1]


def understood(text: str) -> tuple[Story, tuple[ScenarioError, ...]]:
    """Return as much of a story as can be understood, and what cannot."""
    story, errors = _read(text)
    return story, tuple(errors)


def _read(text: str) -> tuple[Story, list[ScenarioError]]:
    lines = text.removeprefix(BYTE_ORDER_MARK).splitlines()
    if len(lines) > LONGEST_STORY:
        too_long = ScenarioError(f"a story has at most {LONGEST_STORY} lines", line=LONGEST_STORY + 1, column=1)
        return Story(lines=(), steps=()), [too_long]
    steps: list[Step] = []
    errors: list[ScenarioError] = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                _take(steps, line, number)
            except ScenarioError as error:
                errors.append(error)
    if not steps and not errors:
        errors.append(ScenarioError("a story needs at least one command", line=max(len(lines), 1), column=1))
    return Story(lines=tuple(lines), steps=tuple(steps)), errors


def _take(steps: list[Step], line: str, number: int) -> None:
    """Take the next line: a step of its own, or more of what must follow the last one."""
    words, expected = _parted(line, number)
    if words:
        steps.append(_step(line, number, words, expected))
    elif steps and steps[-1].last_line == number - 1 and steps[-1].expected is not None:
        steps[-1] = _continued(steps[-1], expected or ())
    else:
        raise ScenarioError("an arrow needs a command before it", line=number, column=1 + line.index(line.strip()))


def _parted(line: str, number: int) -> tuple[list[Word], tuple[str, ...] | None]:
    """Part a line into the words of its command and the facts behind its arrow, if it has one."""
    words = part(line, number)
    for position, word in enumerate(words):
        if word.text in ARROWS and not word.quoted:
            return words[:position], facts_of(line[word.column - 1 + len(word.text) :])
    return words, None


def facts_of(text: str) -> tuple[str, ...]:
    """Part what follows an arrow into facts."""
    return tuple(fact.strip() for fact in text.split(";") if fact.strip())


def _step(line: str, number: int, words: list[Word], expected: tuple[str, ...] | None) -> Step:
    command, at = read_command(words, number)
    return Step(
        line=number,
        last_line=number,
        words=tuple(words),
        text=line[: words[-1].end - 1].rstrip(),
        command=command,
        at=at,
        expected=expected,
    )


def _continued(step: Step, more: tuple[str, ...]) -> Step:
    return msgspec.structs.replace(step, last_line=step.last_line + 1, expected=(*(step.expected or ()), *more))


def retold(story: Story, outcomes: Mapping[int, Sequence[str]]) -> str:
    """Write the story with these outcomes, by the lines of their steps, behind its arrows. All else stays as it is."""
    steps = {step.line: step for step in story.steps if step.line in outcomes and step.expected is not None}
    continued = {number for step in steps.values() for number in range(step.line + 1, step.last_line + 1)}
    columns = dict(_arrow_columns(story, steps))
    lines: list[str] = []
    for number, line in enumerate(story.lines, start=1):
        if number in steps:
            lines += _written(steps[number].text, outcomes[number], columns[number])
        elif number not in continued:
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def _arrow_columns(story: Story, steps: Mapping[int, Step]) -> Iterator[tuple[int, int]]:
    """Give the column of each step's arrow: the same for all steps of a paragraph."""
    for paragraph in _paragraphs(story.lines):
        inside = [steps[number] for number in paragraph if number in steps]
        widths = [len(step.text) for step in inside if len(step.text) <= WIDEST_COMMAND]
        for step in inside:
            yield step.line, max(widths, default=0)


def _paragraphs(lines: Sequence[str]) -> Iterator[range]:
    first = 1
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            yield range(first, number)
            first = number + 1
    yield range(first, len(lines) + 1)


def _written(command: str, facts: Sequence[str], column: int) -> list[str]:
    column = max(column, len(command))
    start = f"{command:<{column}}  →  "
    if len(start) + len("; ".join(facts)) <= WIDTH:
        return [start + "; ".join(facts)]
    first, *others = facts
    return [start + first, *(f"{'':<{column}}  →  {fact}" for fact in others)]
