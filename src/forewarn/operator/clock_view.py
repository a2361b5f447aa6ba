"""View of the clock."""

from forewarn.api import v1
from forewarn.clock import ManualClock
from forewarn.core.duration import format_duration
from forewarn.fleet.service import Fleet


def show_clock(fleet: Fleet) -> v1.Clock:
    """Return the clock as a response type."""
    clock = fleet.clock
    return v1.Clock(
        now=clock.now(),
        manual=isinstance(clock, ManualClock),
        next_change_at=clock.next_timer_at if isinstance(clock, ManualClock) else None,
        speed=fleet.emulator.speed.current,
        shortest_notice=format_duration(fleet.scopes.policy.shortest_notice),
    )
