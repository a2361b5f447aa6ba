"""The fleet state record: its newest value in memory, and its changes."""

from collections.abc import Callable

from forewarn.fleet.fleet_state import FLEET_STATE, FleetState, decode, encode
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordChange, RecordCodec, RecordTable
from forewarn.store.port import NO_GUARDS, Guards


class FleetStateRecord:
    """Holds the last saved fleet state."""

    def __init__(self, main_loop: MainLoop) -> None:
        self.state = FleetState()
        """The fleet state; a new one if nothing was saved yet."""
        self._table = RecordTable[FleetState]()
        codec = RecordCodec(FLEET_STATE.kind, encode, decode, id=FLEET_STATE.id)
        self._loop = main_loop.add(codec, self._table, [self._observe])

    def _observe(self, change: RecordChange[FleetState]) -> None:
        """Take the newest value into memory, because it is read far more often than it changes."""
        self.state = self._table.newest(change.id)[0] or FleetState()

    @property
    def observers(self) -> list[Observer[FleetState]]:
        """The observers of every change of the record, in order."""
        return self._loop.observers

    async def apply(
        self,
        rule: Callable[[FleetState], Decision[FleetState, None]],
        guards: Callable[[], Guards] = lambda: NO_GUARDS,
    ) -> None:
        """Apply a rule to the fleet state and save it, with the guards of what the rule rests on."""
        await self._loop.apply(FLEET_STATE.id, lambda state: rule(state or FleetState())._replace(guards=guards()))
