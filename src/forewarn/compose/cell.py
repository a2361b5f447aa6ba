"""Cells of the cluster store: open one for a service; create, describe and check it. Needs the extra `[cluster]`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex

import msgspec

from forewarn.clock import SystemClock
from forewarn.compose.platforms import create_policy
from forewarn.compose.reload import adopt_token
from forewarn.files import prepare_directory
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import Settings
from forewarn.store.nats.connection import ApiRefused, NatsConnection, ResponseMissing, ServerUnavailable
from forewarn.store.nats.lease import CLOCK, MEMBER_FILE, LeaseMessage, NatsLease, read_member
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CellStream, StreamState, check_version
from forewarn.store.sqlite.directory import LOCK_FILE, lock_directory, wrap_os_errors

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
    """The process that may change the cell; None if no service runs on it."""


class CellReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a cell has found."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


@asynccontextmanager
async def run_cell(
    settings: NatsSettings, directory: Path, *, is_shared: bool = False
) -> AsyncIterator[tuple[NatsStore, NatsLease]]:
    """Open a cell for the only service that changes it; yield the store and the lease that says so.

    A shared cell has several control nodes. Each can change it, and the lease, which is not held yet, says which one
    acts by time.
    """
    with wrap_os_errors(directory):
        prepare_directory(directory, (LOCK_FILE, MEMBER_FILE))
        lock = lock_directory(directory)
    try:
        store = await NatsStore.open(settings, directory)
        try:
            member = read_member(directory)
            yield store, store.lease(CLOCK, member) if is_shared else await store.claim(member)
        finally:
            await store.aclose()
    finally:
        lock.release()


async def init_cell(settings: NatsSettings) -> bool:
    """Create a cell; return False if it exists."""
    async with _connect(settings) as stream:
        return await stream.create(settings.replicas, token_hex(12))


async def create_first_token(settings: Settings, directory: Path) -> bool:
    """Create the admin token of a cell that has none, and write it into the data directory; return whether it did."""
    async with (
        run_cell(settings.nats, directory, is_shared=True) as (store, _),
        Fleet.run(
            store=store,
            platform=SimulatedPlatform(SystemClock()),
            clock=SystemClock(),
            policy=create_policy(settings),
            has_duties=False,
        ) as fleet,
    ):
        if fleet.tokens.all():
            return False
        await adopt_token(fleet, directory, by="cluster init")
        return True


async def read_status(settings: NatsSettings) -> CellStatus:
    """Return the state of a cell."""
    async with _connect(settings) as stream:
        return await _describe(stream, await stream.read_state())


async def check_cell(settings: NatsSettings) -> CellReport:
    """Check the settings of a cell, whether all its servers are current, and whether this user may change it."""
    async with _connect(settings) as stream:
        state = await stream.read_state()
        status = await _describe(stream, state)
        found = state.details["config"]
        problems = [
            f"the stream has {key} = {found.get(key)!r}, but Forewarn needs {value!r}"
            for key, value in stream.settings(settings.replicas).items()
            if found.get(key, 0 if key == "max_age" else None) != value
        ]
        problems += [
            f"server {replica.name} is not current (it lacks {replica.lag} messages)"
            for replica in status.replicas
            if not replica.is_current
        ]
        repeated = [subject for subject, count in (await _count(stream, stream.subjects.records)).items() if count > 1]
        if repeated:
            problems.append(f"{len(repeated)} records have more than one message, such as {repeated[0]}")
        try:
            await stream.test_write(0)
        except (ApiRefused, ResponseMissing, ServerUnavailable) as error:
            problems.append(f"a test write has failed: {error}; check the permissions of this user")
        warnings = [SYNC_NOTE]
        if settings.replicas == 1:
            warnings.insert(0, "the cell has one replica: if its server is lost, so is the fleet")
        return CellReport(problems=tuple(problems), warnings=tuple(warnings))


@asynccontextmanager
async def _connect(settings: NatsSettings) -> AsyncIterator[CellStream]:
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    try:
        check_version(connection.version)
        yield stream
    except (ApiRefused, ResponseMissing, ServerUnavailable) as error:
        raise stream.unavailable(error) from error
    finally:
        await connection.aclose()


async def _describe(stream: CellStream, state: StreamState) -> CellStatus:
    cluster = state.details.get("cluster") or {}
    leader = Replica(name=str(cluster.get("leader", "")), is_leader=True, is_current=True, lag=0)
    followers = (
        Replica(name=each["name"], is_leader=False, is_current=each.get("current", False), lag=each.get("lag", 0))
        for each in cluster.get("replicas") or ()
    )
    owner = await stream.read_last(stream.subjects.lease(CLOCK))
    found = LeaseMessage.parse(owner.data) if owner is not None else None
    return CellStatus(
        cell=stream.subjects.cell,
        id=state.cell_id,
        stream=stream.name,
        server_version=".".join(map(str, stream.connection.version)),
        replicas=(leader, *sorted(followers, key=lambda each: each.name)),
        records=len(await _count(stream, stream.subjects.records)) - 1,  # without the one of the cell itself
        journal_messages=sum((await _count(stream, stream.subjects.journal)).values()),
        last_sequence=state.last,
        size=state.details["state"]["bytes"],
        owner=found.name if found is not None else None,
    )


async def _count(stream: CellStream, subjects: str) -> dict[str, int]:
    """Return how many messages each subject has."""
    counts: dict[str, int] = {}
    while True:
        body = {"subjects_filter": subjects, "offset": len(counts)}
        answer = await stream.connection.call(f"STREAM.INFO.{stream.name}", body)
        page: dict[str, int] = answer["state"].get("subjects") or {}
        counts |= page
        if not page or len(counts) >= answer.get("total", len(counts)):
            return counts
