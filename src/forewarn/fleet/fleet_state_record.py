"""The fleet state record: its newest value in memory, and its changes."""

from collections.abc import Callable

from forewarn.fleet.fleet_state import FLEET_STATE, FleetState, decode, encode
from forewarn.fleet.main_loop import Decision, MainLoop, RecordCodec, RecordTable


class FleetStateRecord:
    """Holds the fleet state as it was last saved."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._loop = main_loop.add(
            RecordCodec(FLEET_STATE.kind, encode, decode, id=FLEET_STATE.id), RecordTable[FleetState]()
        )

    @property
    def state(self) -> FleetState:
        """The fleet state; a new one where nothing was saved yet."""
        return self._loop.newest(FLEET_STATE.id)[0] or FleetState()

    async def apply(self, rule: Callable[[FleetState], Decision[FleetState, None]]) -> None:
        """Apply a rule to the fleet state and save it."""
        await self._loop.apply(FLEET_STATE.id, lambda state: rule(state or FleetState()))
