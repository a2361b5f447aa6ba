"""The handler role in a live scenario: taken by the scenario itself, or by a program under examination."""

from typing import Protocol

from forewarn.api import v1
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.journal_watcher import JournalWatcher
from forewarn.testing.scenario.live_commands import wait_for_port
from forewarn.testing.scenario.live_state import LiveState

DEFAULT_TIMEOUT = 5.0
"""For how many seconds of real time a program may take to do what one of its lines says."""


class HandlerProgram(Protocol):
    """A program that runs as the handler."""

    def start(self, vm: v1.Vm) -> None:
        """Start it inside this VM, and return when it has begun to ask. Called where the scenario names its handler."""
        ...

    def catch_up(self) -> None:
        """Return when it has seen what there is to see. Called each time before a manual clock is moved."""
        ...


class HandlerRole:
    """Leaves the actions of the handler to the program, if there is one."""

    def __init__(
        self, program: HandlerProgram | None, timeout: float, state: LiveState, watcher: JournalWatcher
    ) -> None:
        self._program, self._timeout = program, timeout
        self._state, self._watcher = state, watcher
        self.handler: v1.Vm | None = None
        """The VM that the scenario has named as its handler."""

    @property
    def is_active(self) -> bool:
        """Whether a program runs as the handler, and acts on its own."""
        return self._program is not None and self.handler is not None

    def assign(self, vm: v1.Vm) -> None:
        """Have this VM be the handler."""
        self.handler = vm
        if self._program is not None:
            self._program.start(wait_for_port(self._state, vm))

    def catch_up(self) -> None:
        """Return when the program has seen what there is to see."""
        if self._program is not None and self.is_active:
            self._program.catch_up()

    def handles(self, command: commands.Command) -> bool:
        """Tell whether it is the program's to do this; its VM may have been taken away by now."""
        if self.handler is None or not self.is_active or not isinstance(command, commands.Approve | commands.Query):
            return False
        scope, slash, name = command.vm.casefold().rpartition("/")
        scope_name = next(
            (scope.name for scope in self._state.scopes.values() if scope.id == self.handler.scope), scope
        )
        return name == self.handler.name.casefold() and (not slash or scope == scope_name.casefold())

    def may_have_changed(self, command: commands.Command) -> bool:
        """Tell whether the command shows what is so, which the program may have changed by now, or not yet."""
        return self.is_active and isinstance(command, commands.Document | commands.Explain)

    def wait_for_program(self, command: commands.Command) -> list[str]:
        """Wait until the program has done it, but not for ever; a manual clock stands still meanwhile."""
        facts = self._state.new_facts(hidden=(EntryKind.ENABLED,))
        deadline = self._watcher.deadline(self._timeout)
        while not self._is_done(command) and self._watcher.wait_until(deadline):
            facts += self._state.new_facts(hidden=(EntryKind.ENABLED,))
        return facts

    def _is_done(self, command: commands.Command) -> bool:
        """Tell whether the program has approved the events, or they are too far on for that to matter.

        When it asks is its own affair.
        """
        if self.handler is None or not isinstance(command, commands.Approve):
            return True
        details = [self._state.api.event(self._state.event(event)) for event in command.events]
        waiting = [detail.event for detail in details if detail.event is not None and detail.event.started_at is None]
        return all(self.handler.name in {approval.vm for approval in event.approvals} for event in waiting)
