"""Terms of leases: a record for each lease, which changes at each take-over and guards what is saved under the lease.

A process may rely on a lease for a moment too long, for example after it was suspended. The revision of the lease's
record, as a guard, refuses what such a process saves once another one has taken over.
"""

import asyncio
from datetime import datetime

import msgspec

from forewarn.fleet.errors import LeaseLost, SaveFailed
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordCodec, RecordTable
from forewarn.store.port import Guards, RecordKey, RecordKind

REACH_SECONDS = 10.0
"""How long a process waits until its replica has everything that was saved before its term."""


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The term of a lease, and who holds it. Whether the holder is alive is not stored here."""

    term: int
    holder: str
    """The name of the holder, for people."""
    process: str
    """The random id of the holder."""
    taken_at: datetime


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(LeaseHolder).decode


class LeaseRecords:
    """The newest term of every lease, by name."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._main_loop = main_loop
        self._table = RecordTable[LeaseHolder]()
        self._loop = main_loop.add(RecordCodec(RecordKind.LEASE, encode, decode), self._table)

    @property
    def observers(self) -> list[Observer[LeaseHolder]]:
        """The observers of every take-over, in order."""
        return self._loop.observers

    def find(self, name: str) -> LeaseHolder | None:
        """Return the newest term of a lease; None if it was never taken."""
        return self._loop.newest(name)[0]

    def revision_of(self, name: str) -> int | None:
        """Return the revision of the newest term."""
        return self._loop.revision_of(name)

    async def take_over(self, name: str, *, holder: str, process: str, now: datetime) -> LeaseHolder:
        """Begin a new term of a lease; return when the replica has everything that was saved before.

        From then on, nothing is saved under the former term.
        """

        def command(known: LeaseHolder | None) -> Decision[LeaseHolder, LeaseHolder]:
            number = 1 if known is None else known.term + 1
            term = LeaseHolder(term=number, holder=holder, process=process, taken_at=now)
            return Decision(term, (), term)

        term = await self._loop.apply(name, command)
        try:
            async with asyncio.timeout(REACH_SECONDS):
                await self._main_loop.wait_reached(self.revision_of(name) or 0)
        except TimeoutError as error:
            late = f"the watch of the store has not reached it within {REACH_SECONDS:g} s"
            raise SaveFailed(f"term {term.term} of the lease {name} cannot begin: {late}") from error
        return term

    def guards(self, name: str, term: int) -> Guards:
        """Return the guard of a save under a term; raise LeaseLost if another one has begun."""
        known, revision = self._loop.newest(name)
        if known is None or known.term != term:
            now = "gone" if known is None else f"held by {known.holder} (term {known.term})"
            raise LeaseLost(f"the lease {name} of term {term} is now {now}")
        return {RecordKey(RecordKind.LEASE, name): revision}
