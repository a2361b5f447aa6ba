"""Hearing what happens while time passes, until what was expected has happened."""

from collections.abc import Callable, Iterable
from datetime import datetime

from forewarn.testing.scenario.commands import NOTHING, Expect
from forewarn.testing.scenario.expecting import is_meant, is_of_event
from forewarn.testing.scenario.stage import Told

PassOn = Callable[[datetime], list[str] | None]
"""Let time pass up to the next change, but not beyond a limit; tell what happened, or None where the limit has come."""


class Heard:
    """The facts since the last command that did something. Each can be expected once, in whichever order they came."""

    def __init__(self) -> None:
        self._facts: list[str] = []

    def begin(self, facts: Iterable[str]) -> None:
        """Forget what was before: these are the facts of another command."""
        self._facts = list(facts)

    def add(self, facts: Iterable[str]) -> None:
        """Take these facts to those before."""
        self._facts += facts

    def expect(self, command: Expect, pass_on: PassOn, *, limit: datetime) -> Told:
        """Let time pass until the fact has come or the limit has; the facts of this time are told."""
        return self._silence(pass_on, limit) if command.subject == NOTHING else self._fact(command.fact, pass_on, limit)

    def _fact(self, said: str, pass_on: PassOn, limit: datetime) -> Told:
        passed: list[str] = []
        while not self._claim(said):
            facts = pass_on(limit)
            if facts is None:
                return Told(tuple(passed), met=False)
            passed += facts
            self._facts += facts
        return Told(tuple(passed))

    def _silence(self, pass_on: PassOn, limit: datetime) -> Told:
        """Hear whether anything happens to an event: what happens to scopes and VMs besides is not meant."""
        passed: list[str] = []
        while (facts := pass_on(limit)) is not None:
            passed += facts
            self._facts += facts
        return Told(tuple(passed), met=not any(map(is_of_event, passed)))

    def _claim(self, said: str) -> bool:
        found = next((fact for fact in self._facts if is_meant(said, fact)), None)
        if found is not None:
            self._facts.remove(found)
        return found is not None
