"""Seen records: when the scopes of a cluster have last polled, in 64 records, each written once an hour.

Hosts report polls once a minute. To save each report in its scope would rewrite every scope, for every follower. So the
scope itself is saved only when a poll enables it, and every control node keeps the other times in memory.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from zlib import crc32

import msgspec

from forewarn.fleet.duty import DutyWork
from forewarn.fleet.errors import SAVE_ERRORS
from forewarn.fleet.main_loop import Decision, MainLoop, RecordCodec, RecordTable
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes
from forewarn.store.port import Guards, RecordKind

log = logging.getLogger(__name__)

RECORDS = 64

PAUSE_SECONDS = 3600 / RECORDS
"""The pause between two records, so that each is written once an hour."""


class SeenTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the last poll of some scopes."""

    scopes: dict[str, datetime] = {}


class SeenRecords:
    """The saved times of all scopes."""

    def __init__(self, main_loop: MainLoop) -> None:
        codec = RecordCodec(RecordKind.SEEN, msgspec.json.Encoder().encode, msgspec.json.Decoder(SeenTimes).decode)
        self._loop = main_loop.add(codec, RecordTable[SeenTimes]())

    def find(self, scope: str) -> datetime | None:
        """Return the saved time of a scope; None if its own record has the newest one."""
        times, _ = self._loop.newest(record_of(scope))
        return None if times is None else times.scopes.get(scope)

    async def save(self, record: str, times: SeenTimes, guards: Callable[[], Guards]) -> None:
        """Save the times of one record, if they have changed."""

        def command(known: SeenTimes | None) -> Decision[SeenTimes, None]:
            value = known if (known or SeenTimes()) == times else times
            return Decision(value, (), None, guards())

        await self._loop.apply(record, command)


class SeenWriter:
    """The duty to save when scopes have polled."""

    def __init__(self, records: SeenRecords, scopes: Scopes, main_loop: MainLoop, guards: Callable[[], Guards]) -> None:
        self._records = records
        self._scopes = scopes
        self._guards = guards
        self._tasks = DutyWork(main_loop)

    async def start(self) -> None:
        """Save one record after the other, each once an hour."""
        if not self._tasks.is_busy:
            self._tasks.create(self._run(), name="save polls")

    def halt(self) -> None:
        """Cancel the task."""
        self._tasks.halt()

    async def stop(self) -> None:
        """Stop saving."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while True:
            for number in range(RECORDS):
                await asyncio.sleep(PAUSE_SECONDS)
                try:
                    await self.save(str(number))
                except SAVE_ERRORS as error:
                    log.info("could not save when scopes have polled; the next hour brings newer times: %s", error)

    async def save(self, record: str) -> None:
        """Save the times of the scopes that belong to a record."""
        fair_share = self._scopes.new_fair_share()
        times: dict[str, datetime] = {}
        for view in list(self._scopes.replica.views()):
            await fair_share.wait_turn()
            if record_of(view.id) == record and (seen_at := self._time_of(view)) is not None:
                times[view.id] = seen_at
        await self._records.save(record, SeenTimes(scopes=dict(sorted(times.items()))), self._guards)

    def _time_of(self, view: ScopeView) -> datetime | None:
        """Return the time to save; None if the scope's own record is as new, or the scope is not enabled."""
        scope = view.scope
        if scope is None or not scope.enabled:
            return None
        newest = max(filter(None, (view.seen_at, self._records.find(view.id))), default=None)
        return None if newest is None or (scope.seen_at is not None and newest <= scope.seen_at) else newest


def record_of(scope: str) -> str:
    """Return the id of the record with the time of a scope."""
    return str(crc32(scope.encode()) % RECORDS)
