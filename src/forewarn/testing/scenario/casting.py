"""Who plays the handler of a story in a running service: the story itself, or a program under examination."""

from typing import Protocol

from forewarn.api import v1
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.bell import Bell
from forewarn.testing.scenario.live_acts import listening
from forewarn.testing.scenario.live_world import LiveWorld

PATIENCE = 5.0
"""For how many seconds of real time a program may take to do what one of its lines says."""


class Program(Protocol):
    """A program that plays the handler."""

    def begin(self, vm: v1.Vm) -> None:
        """Start it inside this VM, and return when it has begun to ask. Called where the story names its handler."""
        ...

    def keep_up(self) -> None:
        """Return when it has seen what there is to see. Called each time before a manual clock is moved."""
        ...


class Casting:
    """Gives the part of the handler to the program, if there is one."""

    def __init__(self, program: Program | None, patience: float, world: LiveWorld, bell: Bell) -> None:
        self._program, self._patience = program, patience
        self._world, self._bell = world, bell
        self.handler: v1.Vm | None = None
        """The VM that the story has named as its handler."""

    @property
    def is_on(self) -> bool:
        """Whether a program is on the stage, and does things on its own."""
        return self._program is not None and self.handler is not None

    def name(self, vm: v1.Vm) -> None:
        """Have this VM be the handler."""
        self.handler = vm
        if self._program is not None:
            self._program.begin(listening(self._world, vm))

    def keep_up(self) -> None:
        """Return when the program has seen what there is to see."""
        if self._program is not None and self.is_on:
            self._program.keep_up()

    def plays(self, command: say.Command) -> bool:
        """Tell whether it is the program's to do this; its VM may have been taken away by now."""
        if self.handler is None or not self.is_on or not isinstance(command, say.Approve | say.Query):
            return False
        scope, slash, name = command.vm.casefold().rpartition("/")
        home = next((place.name for place in self._world.places.values() if place.id == self.handler.scope), scope)
        return name == self.handler.name.casefold() and (not slash or scope == home.casefold())

    def may_have_changed(self, command: say.Command) -> bool:
        """Tell whether the command shows what is so, which the program may have changed by now, or not yet."""
        return self.is_on and isinstance(command, say.Document | say.Explain)

    def leave(self, command: say.Command) -> list[str]:
        """Wait until the program has done it, but not for ever; a manual clock stands still meanwhile."""
        facts = self._world.tell(untold=(EntryKind.ENABLED,))
        deadline = self._bell.deadline(self._patience)
        while not self._is_done(command) and self._bell.wait_until(deadline):
            facts += self._world.tell(untold=(EntryKind.ENABLED,))
        return facts

    def _is_done(self, command: say.Command) -> bool:
        """Tell whether the program has approved the events, or they are too far on for that to matter.

        When it asks is its own affair.
        """
        if self.handler is None or not isinstance(command, say.Approve):
            return True
        stories = [self._world.api.event(self._world.event(event)) for event in command.events]
        waiting = [story.event for story in stories if story.event is not None and story.event.started_at is None]
        return all(self.handler.name in {approval.vm for approval in event.approvals} for event in waiting)
