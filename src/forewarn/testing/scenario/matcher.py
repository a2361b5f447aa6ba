"""Match facts against expectations while time advances."""

from collections.abc import Callable, Iterable
from datetime import datetime

from forewarn.testing.scenario.commands import NOTHING, Expect
from forewarn.testing.scenario.expect import is_event_fact, matches_fact
from forewarn.testing.scenario.runner import CommandResult

Advance = Callable[[datetime], list[str] | None]
"""Lets time pass up to the next change, at most to a limit; returns the new facts, or None if the limit was reached."""


class ExpectationMatcher:
    """Matches expectations against the facts since the last command that did something; each fact matches once."""

    def __init__(self) -> None:
        self._facts: list[str] = []

    def reset(self, facts: Iterable[str]) -> None:
        """Replace the facts by those of a new command."""
        self._facts = list(facts)

    def add(self, facts: Iterable[str]) -> None:
        """Add facts to the earlier ones."""
        self._facts += facts

    def expect(self, command: Expect, advance: Advance, *, limit: datetime) -> CommandResult:
        """Let time pass until the expected fact occurs, or to the limit; return the facts of this time."""
        return (
            self._expect_nothing(advance, limit)
            if command.subject == NOTHING
            else self._expect_fact(command.fact, advance, limit)
        )

    def _expect_fact(self, expected: str, advance: Advance, limit: datetime) -> CommandResult:
        new_facts: list[str] = []
        while not self._claim(expected):
            facts = advance(limit)
            if facts is None:
                return CommandResult(tuple(new_facts), is_met=False)
            new_facts += facts
            self._facts += facts
        return CommandResult(tuple(new_facts))

    def _expect_nothing(self, advance: Advance, limit: datetime) -> CommandResult:
        """Match `nothing`: only facts about events count, not those about scopes and VMs."""
        new_facts: list[str] = []
        while (facts := advance(limit)) is not None:
            new_facts += facts
            self._facts += facts
        return CommandResult(tuple(new_facts), is_met=not any(map(is_event_fact, new_facts)))

    def _claim(self, expected: str) -> bool:
        found = next((fact for fact in self._facts if matches_fact(expected, fact)), None)
        if found is not None:
            self._facts.remove(found)
        return found is not None
