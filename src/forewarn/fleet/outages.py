"""Outage tracking: heartbeats, and times in which the service was down, which do not count towards idle timeouts."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from forewarn.clock import ManualClock
from forewarn.core.policy import Outage
from forewarn.fleet import fleet_state
from forewarn.fleet.duty import no_guards
from forewarn.fleet.errors import SAVE_ERRORS
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.scopes import Scopes
from forewarn.store.port import Guards

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL = 300.0
"""The pause in seconds between heartbeats of a service with an idle timeout."""

FINAL_SAVE_TIMEOUT = 5.0
"""How long, in seconds, the service waits at its end to save the time."""

MIN_OUTAGE = timedelta(minutes=1)
"""Steps of the clock up to this size are not an outage."""


class OutageTracker:
    """Tracks when the service was up. Downtime is stored as outages, which do not count towards idle timeouts.

    The service is down while it does not run, and also while its machine is suspended or if its clock is set forward:
    then the clock has moved on and the process has not.
    """

    def __init__(
        self, scopes: Scopes, state_record: FleetStateRecord, guards: Callable[[], Guards] = no_guards
    ) -> None:
        self._scopes = scopes
        self._guards = guards
        self._state_record = state_record
        self._clock = scopes.clock
        self._lock = asyncio.Lock()
        self._started_at: datetime | None = None
        """When the service started, until that is saved."""
        self._reset_baseline()

    async def start(self) -> None:
        """Save that the service has started. If that fails, it is saved before anything depends on it."""
        self._started_at = self._clock.now()
        try:
            await self._record_start()
        except SAVE_ERRORS as error:
            log.warning("could not save the start of the service, it is saved with the next change: %s", error)

    async def run(self) -> None:
        """Save a heartbeat every few minutes, if there is an idle timeout."""
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL)
            if self._tracks_idle:
                with suppress(*SAVE_ERRORS):
                    await self._save_alive()

    async def stop(self) -> None:
        """Save the time at which the service stops, if that is quickly possible."""
        with suppress(*SAVE_ERRORS, TimeoutError):
            async with asyncio.timeout(FINAL_SAVE_TIMEOUT):
                await self._save_alive()

    async def record_outage(self) -> None:
        """Save the outage since the last call, if any; call this before idle timeouts are evaluated."""
        async with self._lock:
            await self._record_start()
            if (outage := self._detect_outage()) is not None:
                await self._state_record.apply(partial(fleet_state.record_outage, outage=outage), self._guards)
                self._reset_baseline()

    @property
    def has_unsaved_outage(self) -> bool:
        """Whether there was an outage since the last one that was saved, or the start is not saved."""
        return self._started_at is not None or self._detect_outage() is not None

    async def _record_start(self) -> None:
        if (started_at := self._started_at) is not None:
            await self._state_record.apply(partial(fleet_state.record_start, now=started_at), self._guards)
            self._started_at = None

    @property
    def _tracks_idle(self) -> bool:
        return self._scopes.policy.idle_after is not None

    async def _save_alive(self) -> None:
        await self.record_outage()
        await self._state_record.apply(partial(fleet_state.record_heartbeat, now=self._clock.now()), self._guards)

    def _detect_outage(self) -> Outage | None:
        """Return the time that has passed on the clock but not in this process, if it matters to idle timeouts."""
        if isinstance(self._clock, ManualClock) or not self._tracks_idle:
            return None
        present = self._baseline + timedelta(seconds=time.monotonic() - self._baseline_monotonic)
        now = self._clock.now()
        if now < present:
            self._reset_baseline()
        return Outage(began_at=present, ended_at=now) if now - present > MIN_OUTAGE else None

    def _reset_baseline(self) -> None:
        self._baseline, self._baseline_monotonic = self._clock.now(), time.monotonic()
