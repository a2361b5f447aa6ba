"""Purges of the journal while a workload runs: the lab decides what is old, and the lease holder removes it."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby

from forewarn.store.nats.connection import NatsConnection, NatsError
from forewarn.store.nats.message import POSITIONS_PER_MESSAGE
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import StoreUnavailable
from tests.end_to_end.cluster.history import Line
from tests.end_to_end.cluster.lab import Lab
from tests.end_to_end.cluster.processes import CELL
from tests.support.processes import wait_until

log = logging.getLogger(__name__)

MESSAGES = 3
"""How many messages become old at once, or more if there are many."""

PORTION = 20
"""The part of all messages that can become old which does so at once."""


class Purges:
    """Purges of one run, one after the other."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.is_over = threading.Event()
        self.count = 0
        """How many times the servers have removed everything that was old."""
        self.lines = 0
        """How many lines they have removed."""
        self.error: BaseException | None = None
        self._rounds = 0

    def run(self) -> None:
        """Purge again and again, while there are lines that can be old."""
        try:
            while not self.is_over.wait(0.05):
                self._lab.archive()
                if old := self._next_messages():
                    self._purge(old)
                self._rounds += 1
        except BaseException as error:  # noqa: BLE001 - `run_purges` raises it
            self.error = error

    def wait(self) -> None:
        """Return when a purge that begins after this call has ended, or nothing could be purged."""
        wanted = self._rounds + 2
        wait_until(lambda: self._rounds >= wanted or self.error is not None, "old lines are purged")

    def _next_messages(self) -> dict[int, list[Line]]:
        """Return the lines of the oldest messages, by sequence. An open campaign reads its lines again: they stay."""
        history = self._lab.history
        if not history.journal:
            return {}
        open_since: dict[str, int] = {}
        for line in history.journal:
            if line.action == "campaign-started":
                open_since[line.record] = _sequence(line)
            elif line.action == "campaign-ended":
                open_since.pop(line.record, None)
        end = min(open_since.values(), default=_sequence(history.journal[-1]) + 1)
        left = (line for line in history.journal if line.position > history.expired and _sequence(line) < end)
        messages = [(sequence, list(lines)) for sequence, lines in groupby(left, _sequence)]
        return dict(messages[: max(MESSAGES, len(messages) // PORTION)])

    def _purge(self, old: dict[int, list[Line]]) -> None:
        """Let messages be old, and return when the servers do not have them any more."""
        limit = (max(old) + 1) * POSITIONS_PER_MESSAGE - 1
        self._lab.history.expired = limit
        for node in self._lab.cluster.controls:
            node.expire(limit)
        while not self.is_over.wait(0.05):
            with suppress(NatsError, StoreUnavailable):
                if not asyncio.run(self._has_any(old)):
                    self.count += 1
                    self.lines += sum(map(len, old.values()))
                    return

    async def _has_any(self, old: dict[int, list[Line]]) -> bool:
        settings = self._lab.cluster.nats.settings(CELL)
        connection = await NatsConnection.open(settings)
        try:
            stream = CellStream(connection, settings.cell)
            return [message for sequence in old if (message := await stream.read_at(sequence))] != []
        finally:
            await connection.aclose()


def _sequence(line: Line) -> int:
    return line.position // POSITIONS_PER_MESSAGE


@contextmanager
def run_purges(lab: Lab) -> Iterator[Purges]:
    """Purge in a thread while the context is open."""
    purges = Purges(lab)
    thread = threading.Thread(target=purges.run)
    thread.start()
    try:
        yield purges
    finally:
        purges.is_over.set()
        thread.join()
        log.info("%d purges of %d lines", purges.count, purges.lines)
    if purges.error is not None:
        raise purges.error
