"""Members of a cell: each process that may save announces who it is, with a message that ends by itself.

A format is switched on when all members know it, and a migration needs a cell without other members. A process
announces itself first and looks for others afterwards, so of two that exclude each other at least one stops.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from forewarn import __version__
from forewarn.store.nats.connection import NatsError
from forewarn.store.nats.lease import RETRY_SECONDS, process_name
from forewarn.store.nats.message import ROLLUP, TTL
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import CellInUse

ANNOUNCE_SECONDS = 5.0
TTL_SECONDS = 20
"""How long a report stands: longer than the election of a leader, which takes up to 8 s."""

PREFIX = "member:"
"""How the names of reports begin; other names are leases."""


class MemberRole(StrEnum):
    """What a member does in the cell."""

    SINGLE = "single"
    CONTROL = "control"
    COMMAND = "command"
    """A command such as `forewarn cluster config`, which ends soon."""
    MIGRATION = "migration"


class HostReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a control node knows about the process of a host."""

    holder: str = ""
    version: str = ""
    format: int = 1
    heard_ago: float | None = None
    """How many seconds ago it was heard from; None: not yet."""
    clock_offset: float | None = None


class MemberReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who a member is."""

    member: str
    """The id of its data directory."""
    process: str
    """The random id of the process."""
    name: str
    """The process, for people."""
    role: MemberRole
    version: str
    format: int
    """The newest format that it knows."""
    clock_offset: float | None = None
    """How many seconds its clock is ahead of the servers, if it has measured that."""
    hosts: dict[str, HostReport] = {}


class Member(NamedTuple):
    """A member, and when it has announced itself, by the clock of the servers."""

    report: MemberReport
    seen_at: datetime


class Observations(NamedTuple):
    """What a member has found out and announces about itself and its hosts."""

    clock_offset: float | None
    hosts: dict[str, HostReport]


class Announcer:
    """Announces this process, again and again. Created by `NatsStore.announce`."""

    def __init__(self, stream: CellStream, member: str, process: str, role: MemberRole) -> None:
        self._stream = stream
        self._member = member
        self._process = process
        self._role = role
        self._subject = stream.subjects.lease(f"{PREFIX}{member}")
        self._announced_at = 0.0
        self.observe: Callable[[], Observations] = lambda: Observations(None, {})
        """Returns what to announce besides; set by the service."""

    async def start(self, *, patience: float) -> None:
        """Announce this process; raise CellInUse if a member goes on that excludes it."""
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            await self._write()
            if (other := await self._find_excluded()) is None:
                return
            if asyncio.get_running_loop().time() > deadline:
                await self.release()
                raise CellInUse(self._stream.subjects.cell, other)
            await asyncio.sleep(RETRY_SECONDS)

    async def run(self) -> None:
        """Announce this process without end; raise CellInUse if it could not for a while and a migration has begun."""
        while True:
            await asyncio.sleep(ANNOUNCE_SECONDS)
            try:
                was_away = asyncio.get_running_loop().time() - self._announced_at > TTL_SECONDS
                await self._write()
                if was_away and (other := await self._find_excluded()) is not None:
                    raise CellInUse(self._stream.subjects.cell, other)
            except NatsError:
                continue

    async def release(self) -> None:
        """Take the report back."""
        with suppress(NatsError):
            await self._stream.publish(self._subject, b"", {**ROLLUP, TTL: "1s"})

    async def _write(self) -> None:
        clock_offset, hosts = self.observe()
        report = MemberReport(
            member=self._member,
            process=self._process,
            name=process_name(),
            role=self._role,
            version=__version__,
            format=self._stream.newest_format,
            clock_offset=clock_offset,
            hosts=hosts,
        )
        sent_at = asyncio.get_running_loop().time()
        await self._stream.publish(self._subject, msgspec.json.encode(report), {**ROLLUP, TTL: f"{TTL_SECONDS}s"})
        self._announced_at = sent_at

    async def _find_excluded(self) -> str | None:
        """Return the name of a member that must not be there together with this one: a migration, or any other one.

        A process that has ended without notice, and whose data directory this one has now, does not count.
        """
        for report, _ in await read_members(self._stream):
            is_other = report.process != self._process and report.member != self._member
            if is_other and MemberRole.MIGRATION in (self._role, report.role):
                what = "a migration, " if report.role is MemberRole.MIGRATION else ""
                return f"{what}{report.name}"
        return None


async def read_members(stream: CellStream) -> list[Member]:
    """Return the members that have announced themselves, in the order of their roles and names."""
    members: list[Member] = []
    for subject in await stream.count_messages(stream.subjects.leases):
        if not stream.subjects.lease_of(subject).startswith(PREFIX):
            continue
        found = await stream.read_stored(subject)
        with suppress(msgspec.MsgspecError):  # an empty one, which was taken back
            if found is not None:
                report = msgspec.json.decode(found.message.data, type=MemberReport)
                members.append(Member(report, found.stored_at))
    return sorted(members, key=lambda each: (each.report.role, each.report.name))
