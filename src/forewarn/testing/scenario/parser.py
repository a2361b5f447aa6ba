"""Parser and writer of scenario files: comments, commands and the facts expected after each.

    # An event starts at its not_before, not earlier.
    scope web availability-set
    vm web_0
    schedule Reboot web_0 at 10:00   →  E1 Scheduled not_before 10:15, incarnation 2
    tick 10:14:59                    →  nothing

A command without an arrow must not be refused. Lines that begin with an arrow continue the facts of the command above
them. `->` is also an arrow."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from forewarn.testing.scenario.commands import Command
from forewarn.testing.scenario.grammar import parse_command
from forewarn.testing.scenario.lexer import ARROWS, Lexeme, ScenarioError, split_line

BYTE_ORDER_MARK = "\ufeff"
"""Some editors put this invisible character at the start of a file."""

MAX_LINES = 10_000
"""More lines than a scenario needs; longer texts are refused."""

MAX_WIDTH = 120
MAX_COMMAND_WIDTH = 56
"""The length limit of written lines, and the rightmost column to which a long command moves a paragraph's arrows."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a scenario. `expected` are the facts that must follow; None without an arrow."""

    line: int
    last_line: int
    words: tuple[Lexeme, ...]
    text: str
    command: Command
    at: timedelta | None = None
    expected: tuple[str, ...] | None = None


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed scenario."""

    lines: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """The title: the comment at the beginning of the scenario."""
        header: list[str] = []
        for line in self.lines:
            if not line.startswith("#"):
                break
            header.append(line.lstrip("#").strip())
        return " ".join(header)


def parse(text: str) -> Script:
    """Parse a scenario. Raises ScenarioError with the position of the first error and what is allowed there."""
    script, errors = _parse(text)
    if errors:
        raise errors[0]
    return script


def syntax_errors(text: str) -> tuple[ScenarioError, ...]:
    """Return all syntax errors of a scenario, at most one per line."""
    return parse_valid_lines(text)[1]


def parse_valid_lines(text: str) -> tuple[Script, tuple[ScenarioError, ...]]:
    """Return the valid lines of a scenario as a script, and its syntax errors."""
    script, errors = _parse(text)
    return script, tuple(errors)


def _parse(text: str) -> tuple[Script, list[ScenarioError]]:
    lines = text.removeprefix(BYTE_ORDER_MARK).splitlines()
    if len(lines) > MAX_LINES:
        too_long = ScenarioError(f"a scenario has at most {MAX_LINES} lines", line=MAX_LINES + 1, column=1)
        return Script(lines=(), steps=()), [too_long]
    steps: list[Step] = []
    errors: list[ScenarioError] = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                _parse_line(steps, line, number)
            except ScenarioError as error:
                errors.append(error)
    if not steps and not errors:
        errors.append(ScenarioError("a scenario needs at least one command", line=max(len(lines), 1), column=1))
    return Script(lines=tuple(lines), steps=tuple(steps)), errors


def _parse_line(steps: list[Step], line: str, number: int) -> None:
    """Parse the next line: a new step, or further expected facts of the last step."""
    words, expected = _split_line(line, number)
    if words:
        steps.append(_parse_step(line, number, words, expected))
    elif steps and steps[-1].last_line == number - 1 and steps[-1].expected is not None:
        steps[-1] = _extend_step(steps[-1], expected or ())
    else:
        raise ScenarioError("an arrow needs a command before it", line=number, column=1 + line.index(line.strip()))


def _split_line(line: str, number: int) -> tuple[list[Lexeme], tuple[str, ...] | None]:
    """Split a line into the words of its command and the facts after its arrow, if it has one."""
    words = split_line(line, number)
    for position, word in enumerate(words):
        if word.text in ARROWS and not word.quoted:
            return words[:position], split_facts(line[word.column - 1 + len(word.text) :])
    return words, None


def split_facts(text: str) -> tuple[str, ...]:
    """Split the text after an arrow into facts."""
    return tuple(fact.strip() for fact in text.split(";") if fact.strip())


def _parse_step(line: str, number: int, words: list[Lexeme], expected: tuple[str, ...] | None) -> Step:
    command, at = parse_command(words, number)
    return Step(
        line=number,
        last_line=number,
        words=tuple(words),
        text=line[: words[-1].end - 1].rstrip(),
        command=command,
        at=at,
        expected=expected,
    )


def _extend_step(step: Step, more: tuple[str, ...]) -> Step:
    return msgspec.structs.replace(step, last_line=step.last_line + 1, expected=(*(step.expected or ()), *more))


def render_script(script: Script, outcomes: Mapping[int, Sequence[str]]) -> str:
    """Return the text of the scenario with these facts, by line number, after its arrows; the rest is unchanged."""
    steps = {step.line: step for step in script.steps if step.line in outcomes and step.expected is not None}
    continued = {number for step in steps.values() for number in range(step.line + 1, step.last_line + 1)}
    columns = dict(_arrow_columns(script, steps))
    lines: list[str] = []
    for number, line in enumerate(script.lines, start=1):
        if number in steps:
            lines += _render_step(steps[number].text, outcomes[number], columns[number])
        elif number not in continued:
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def _arrow_columns(script: Script, steps: Mapping[int, Step]) -> Iterator[tuple[int, int]]:
    """Yield line and column of each step's arrow: the column is the same for all steps of a paragraph."""
    for paragraph in _paragraphs(script.lines):
        inside = [steps[number] for number in paragraph if number in steps]
        widths = [len(step.text) for step in inside if len(step.text) <= MAX_COMMAND_WIDTH]
        for step in inside:
            yield step.line, max(widths, default=0)


def _paragraphs(lines: Sequence[str]) -> Iterator[range]:
    first = 1
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            yield range(first, number)
            first = number + 1
    yield range(first, len(lines) + 1)


def _render_step(command: str, facts: Sequence[str], column: int) -> list[str]:
    column = max(column, len(command))
    start = f"{command:<{column}}  →  "
    if len(start) + len("; ".join(facts)) <= MAX_WIDTH:
        return [start + "; ".join(facts)]
    first, *others = facts
    return [start + first, *(f"{'':<{column}}  →  {fact}" for fact in others)]
