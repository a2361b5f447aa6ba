"""Speed of the service: notices and durations of new events are divided by it. An operator can change it."""

from collections.abc import Callable
from functools import partial

import msgspec

from forewarn.clock import ManualClock
from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_SPEED
from forewarn.core.policy import Policy
from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state import FleetState, SpeedChange
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.main_loop import RecordChange
from forewarn.fleet.scopes import Scopes


class Speed:
    """The current speed, which is part of the policy. A change applies in every process when it is saved.

    `setting` is the speed of the settings; None outside the emulator, where the speed stays that of the policy.
    A changed speed outlives a restart, unless this setting is another one then. A process with another setting keeps
    its own speed, but not over a restart, because only the last change is saved.
    """

    def __init__(self, scopes: Scopes, state_record: FleetStateRecord, setting: float | None) -> None:
        self._scopes = scopes
        self._state_record = state_record
        self._setting = setting
        self._was_changed = False
        state_record.observers.append(self._observe)
        self.observers: list[Callable[[float], None]] = []
        """Called with every new speed, for parts that keep their own."""

    @property
    def current(self) -> float:
        """The speed."""
        return self._scopes.policy.speed

    @property
    def is_time_virtual(self) -> bool:
        """Whether the time of this service differs from real time: a manual clock, or a speed that was chosen."""
        return self.current != 1 or self._was_changed or isinstance(self._scopes.clock, ManualClock)

    async def change(self, speed: float, *, by: str) -> None:
        """Change the speed for new events; those that exist keep their times. The same speed again changes nothing."""
        if self._setting is None:
            raise Invalid("the speed can be changed only in the emulator")
        if not 0 < speed <= MAX_SPEED:
            raise Invalid(f"speed must be above 0 and at most {MAX_SPEED} (got {speed:g})")
        if speed == self.current:
            return
        change = SpeedChange(speed=speed, setting=self._setting)
        now = self._scopes.clock.now()
        await self._state_record.apply(partial(fleet_state.change_speed, change=change, by=by, now=now))

    def _observe(self, _: RecordChange[FleetState]) -> None:
        """Apply the saved speed, unless it was changed where the settings have another one."""
        changed = self._state_record.state.speed
        if changed is None or changed.setting != self._setting:
            return
        self._was_changed = True
        if changed.speed != self.current:
            self._scopes.policy = msgspec.structs.replace(self._scopes.policy, speed=changed.speed)
            for observe in self.observers:
                observe(changed.speed)

    def keep(self, policy: Policy) -> Policy:
        """Return another policy at the current speed."""
        return msgspec.structs.replace(policy, speed=self.current)
