"""State of a cell of the cluster store: describe it, and check it. Needs the extra `[cluster]`."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from forewarn.compose.cell import connect_cell
from forewarn.fleet import lease_record
from forewarn.settings.nats import NatsSettings
from forewarn.settings.types import RoleName
from forewarn.store.nats.connection import NatsError
from forewarn.store.nats.lease import CLOCK, LeaseMessage
from forewarn.store.nats.member import Member, read_members
from forewarn.store.nats.message import EXPECTED
from forewarn.store.nats.stream import REPAIRED, CellStream, StreamState
from forewarn.store.port import RecordKey, RecordKind

NEVER = str(1 << 62)
"""A sequence that no subject has: a message that expects it is refused, so a test writes nothing."""

SYNC_NOTE = (
    "a change is confirmed when a majority of the servers has it; unless they run with `sync_interval: always`, the "
    "last changes can be lost if all of them lose power at once"
)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a cell."""

    name: str
    is_leader: bool
    is_current: bool
    lag: int


class CellMember(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a cell."""

    name: str
    role: str
    host: str | None
    version: str
    format: int
    """The newest format of records that it knows."""
    clock_offset: float | None
    """How many seconds its clock is ahead of the servers; None if it has not told."""
    last_seen: datetime | None
    """When it was last heard from, by the clock of the servers."""


class CellLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease, and the process that has it."""

    name: str
    holder: str
    term: int
    is_held: bool
    """Whether the holder lives; the lease `registry` belongs to the process that has used it last."""


class CellStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cell."""

    cell: str
    id: str
    stream: str
    server_version: str
    replicas: tuple[Replica, ...]
    records: int
    journal_messages: int
    last_sequence: int
    size: int
    owner: str | None
    """The process that starts due events and runs campaigns; None if no service runs on the cell."""
    format: int
    """The format in which records are saved."""
    members: tuple[CellMember, ...]
    leases: tuple[CellLease, ...]


class CellReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a cell has found."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


async def read_status(settings: NatsSettings) -> CellStatus:
    """Return the state of a cell."""
    async with connect_cell(settings) as stream:
        return await _describe(stream, await stream.read_state())


async def check_cell(settings: NatsSettings) -> CellReport:
    """Check the settings of a cell, whether all its servers are current, and whether this user may change it."""
    async with connect_cell(settings) as stream:
        state = await stream.read_state()
        status = await _describe(stream, state)
        found = state.details["config"]
        problems = [
            f"the stream has {key} = {found.get(key)!r}, but Forewarn needs {value!r}"
            for key, value in stream.settings(settings.replicas).items()
            if found.get(key, 0 if key == "max_age" else None) != value
        ]
        if any(found.get(key) != stream.settings(0)[key] for key in REPAIRED):
            problems.append("these settings of the stream are of an older version: run `forewarn cluster upgrade`")
        problems += [
            f"server {replica.name} is not current (it lacks {replica.lag} messages)"
            for replica in status.replicas
            if not replica.is_current
        ]
        repeated = [
            subject for subject, count in (await stream.count_messages(stream.subjects.records)).items() if count > 1
        ]
        if repeated:
            problems.append(f"{len(repeated)} records have more than one message, such as {repeated[0]}")
        try:
            await stream.test_write(0)
        except NatsError as error:
            problems.append(f"a test write has failed: {error}; check the permissions of this user")
        else:
            try:
                denied = await _find_denied(stream)
            except NatsError as error:
                raise stream.unavailable(error) from error
            if denied:
                problems.append(f"a control node cannot {', '.join(denied)}: check the permissions of this user")
        warnings = [SYNC_NOTE]
        if settings.replicas == 1:
            warnings.insert(0, "the cell has one replica: if its server is lost, so is the fleet")
        return CellReport(problems=tuple(problems), warnings=tuple(warnings))


async def _find_denied(stream: CellStream) -> list[str]:
    """Return what this user may not do, although a control node must. The attempts change nothing."""
    subjects, api = stream.subjects, stream.connection.api_prefix
    attempts = {
        "write records": (subjects.of(RecordKey(RecordKind.FLEET, "probe")), b""),
        "write the journal": (subjects.journal, b""),
        "write what was pruned": (subjects.pruned, b""),
        "write leases": (subjects.lease("probe"), b""),
        "prune the journal": (f"{api}.STREAM.PURGE.{stream.name}", b'{"filter": "none"}'),
        "follow the stream": (f"{api}.CONSUMER.CREATE.{stream.name}.probe", b"{}"),
    }

    denied = [
        what
        for what, (subject, data) in attempts.items()
        if not await stream.connection.may_send(subject, data, {EXPECTED: NEVER})
    ]
    if not await stream.connection.may_receive(subjects.commands):
        denied.append("receive commands of hosts")
    return denied


async def _describe(stream: CellStream, state: StreamState) -> CellStatus:
    cluster = state.details.get("cluster") or {}
    leader = Replica(name=str(cluster.get("leader", "")), is_leader=True, is_current=True, lag=0)
    followers = (
        Replica(name=each["name"], is_leader=False, is_current=each.get("current", False), lag=each.get("lag", 0))
        for each in cluster.get("replicas") or ()
    )
    members = await read_members(stream)
    leases = await _read_leases(stream)
    owner = await stream.read_last(stream.subjects.lease(CLOCK))
    found = LeaseMessage.parse(owner.data) if owner is not None else None
    return CellStatus(
        cell=stream.subjects.cell,
        id=state.cell_id,
        stream=stream.name,
        server_version=".".join(map(str, stream.connection.version)),
        replicas=(leader, *sorted(followers, key=lambda each: each.name)),
        records=len(await stream.count_messages(stream.subjects.records)) - 1,  # without the one of the cell itself
        journal_messages=sum((await stream.count_messages(stream.subjects.journal)).values()),
        last_sequence=state.last,
        size=state.details["state"]["bytes"],
        owner=found.name if found is not None else None,
        format=stream.format,
        members=tuple(_list_members(members)),
        leases=leases,
    )


def _list_members(members: Sequence[Member]) -> Iterator[CellMember]:
    """Yield the processes that have announced themselves, and the hosts that they have heard from."""
    hosts: dict[str, CellMember] = {}
    for report, seen_at in members:
        yield CellMember(
            name=report.name,
            role=report.role.value,
            host=None,
            version=report.version,
            format=report.format,
            clock_offset=report.clock_offset,
            last_seen=seen_at,
        )
        for name, on_host in report.hosts.items():
            ago = on_host.heard_ago
            heard_at = None if ago is None else seen_at - timedelta(seconds=ago)
            known = hosts.get(name)
            if known is None or known.last_seen is None or (heard_at is not None and heard_at > known.last_seen):
                hosts[name] = CellMember(
                    name=on_host.holder,
                    role=RoleName.HOST.value,
                    host=name,
                    version=on_host.version,
                    format=on_host.format,
                    clock_offset=on_host.clock_offset,
                    last_seen=heard_at,
                )
    yield from (hosts[name] for name in sorted(hosts))


async def _read_leases(stream: CellStream) -> tuple[CellLease, ...]:
    """Return the newest term of every lease, and whether its holder lives."""
    leases: list[CellLease] = []
    for subject in sorted(await stream.count_messages(f"$KV.{stream.subjects.cell}.{RecordKind.LEASE.value}.>")):
        name = stream.subjects.key_of(subject).id
        term = await stream.read_last(subject)
        holder = await stream.read_last(stream.subjects.lease(name))
        if term is not None and not term.is_marker:
            taken = lease_record.decode(term.data)
            living = LeaseMessage.parse(holder.data) if holder is not None else None
            leases.append(
                CellLease(
                    name=name,
                    holder=taken.holder,
                    term=taken.term,
                    is_held=living is not None and living.process == taken.process,
                )
            )
    return tuple(leases)
