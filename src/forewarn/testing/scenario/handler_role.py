"""The handler role in a live scenario: played by the scenario itself, or by a program under test."""

import time
from typing import Protocol

from forewarn.api import v1
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.journal_watcher import JournalWatcher
from forewarn.testing.scenario.live_commands import wait_for_port
from forewarn.testing.scenario.live_state import LiveState

DEFAULT_TIMEOUT = 5.0
"""How many seconds of real time a program has for each line that it must carry out."""


WAIT_SLICE = 0.1
"""The seconds between two questions whether the program still has time."""


class HandlerProgram(Protocol):
    """A program that runs as the handler."""

    def start(self, vm: v1.Vm) -> None:
        """Start the program inside this VM and wait for its first poll. Called at the scenario's `handler` line."""
        ...

    def catch_up(self) -> None:
        """Wait until the program has received the current document. Called before each move of a manual clock."""
        ...

    def has_time(self, began_at: float, timeout: float) -> bool:
        """Return whether the program still has time for a line that began at this time of the monotonic clock.

        `timeout` is the usual number of seconds; a program may need more.
        """
        ...


class HandlerRole:
    """Lets the program, if there is one, carry out the actions of the handler."""

    def __init__(
        self, program: HandlerProgram | None, timeout: float, state: LiveState, watcher: JournalWatcher
    ) -> None:
        self._program, self._timeout = program, timeout
        self._state, self._watcher = state, watcher
        self.handler: v1.Vm | None = None
        """The VM that the scenario names as its handler."""

    @property
    def is_active(self) -> bool:
        """Whether a program runs as the handler."""
        return self._program is not None and self.handler is not None

    def assign(self, vm: v1.Vm) -> None:
        """Make this VM the handler, and start the program in it."""
        self.handler = vm
        if self._program is not None:
            self._program.start(wait_for_port(self._state, vm))

    def catch_up(self) -> None:
        """Wait until the program has received the current document."""
        if self._program is not None and self.is_active:
            self._program.catch_up()

    def handles(self, command: commands.Command) -> bool:
        """Return whether the program carries out this command; its VM may have been removed by now."""
        if self.handler is None or not self.is_active or not isinstance(command, commands.Approve | commands.Query):
            return False
        scope, slash, name = command.vm.casefold().rpartition("/")
        scope_name = next(
            (scope.name for scope in self._state.scopes.values() if scope.id == self.handler.scope), scope
        )
        return name == self.handler.name.casefold() and (not slash or scope == scope_name.casefold())

    def may_have_changed(self, command: commands.Command) -> bool:
        """Return whether the command shows state that the program may or may not have changed by now."""
        return self.is_active and isinstance(command, commands.Document | commands.Explain)

    def wait_for_program(self, command: commands.Command) -> list[str]:
        """Wait until the program has carried out the command, or until the timeout. A manual clock does not move."""
        facts = self._state.new_facts(hidden=(EntryKind.ENABLED,))
        began_at = time.monotonic()
        while not self._is_done(command) and self._has_time(began_at):
            self._watcher.wait(WAIT_SLICE)
            facts += self._state.new_facts(hidden=(EntryKind.ENABLED,))
        return facts

    def _has_time(self, began_at: float) -> bool:
        return self._program is not None and self._program.has_time(began_at, self._timeout)

    def _is_done(self, command: commands.Command) -> bool:
        """Return whether the program has approved the events, or they have started or ended.

        A query counts as done: the program chooses the times of its polls.
        """
        if self.handler is None or not isinstance(command, commands.Approve):
            return True
        details = [self._state.api.event(self._state.event(event)) for event in command.events]
        waiting = [detail.event for detail in details if detail.event is not None and detail.event.started_at is None]
        return all(self.handler.name in {approval.vm for approval in event.approvals} for event in waiting)
