"""The duties of a process, which are started and stopped together."""

import asyncio
from datetime import timedelta

from forewarn.fleet.duty import Duty
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.scheduler import Scheduler
from forewarn.fleet.seen_record import SeenWriter


class Duties:
    """All duties, in the order in which they start. If hosts carry out impacts, this process saves their polls."""

    def __init__(
        self,
        scheduler: Scheduler,
        impacts: Impacts,
        campaigns: Duty,
        pruner: Duty,
        *,
        seen_writer: SeenWriter,
        has_hosts: bool,
    ) -> None:
        self.scheduler = scheduler
        self.impacts = impacts
        self.seen_writer = seen_writer
        self._all: tuple[Duty, ...] = (
            (scheduler, campaigns, pruner, seen_writer) if has_hosts else (scheduler, impacts, campaigns, pruner)
        )

    @property
    def overdue(self) -> timedelta:
        """How late the earliest timer is; zero if the scheduler works normally."""
        return self.scheduler.overdue

    async def start(self) -> None:
        """Start all duties."""
        for duty in self._all:
            await duty.start()

    async def stop(self) -> None:
        """Stop all duties, at once. On return none of their tasks is running."""
        await asyncio.gather(*(duty.stop() for duty in self._all))

    def halt(self) -> None:
        """Begin nothing more, at once, because the service stops."""
        for duty in self._all:
            duty.halt()
