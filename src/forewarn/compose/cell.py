"""Cells of the cluster store: open one for a service; create, prepare and upgrade it. Needs the extra `[cluster]`."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from forewarn.clock import SystemClock
from forewarn.compose.platforms import create_policy
from forewarn.compose.reload import adopt_token
from forewarn.compose.restored_fleet import begin_epochs, hold_restored
from forewarn.core.restore import RESTORE
from forewarn.files import prepare_directory
from forewarn.fleet.errors import SAVE_ERRORS
from forewarn.fleet.host.registry import HostRecord
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import PolicySettings, Settings
from forewarn.store.nats.connection import ApiRefused, NatsConnection, NatsError
from forewarn.store.nats.lease import CLOCK, MEMBER_FILE, NatsLease, read_member
from forewarn.store.nats.member import MemberRole, read_members
from forewarn.store.nats.save_queue import NOT_SAVED
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CellStream, check_version
from forewarn.store.port import RecordKind, StoreError, StoreUnavailable
from forewarn.store.sqlite.directory import LOCK_FILE, lock_directory, wrap_os_errors

log = logging.getLogger(__name__)


RESTORED = "the NATS servers have restored an older state of the cell"

ELECTION_SECONDS = 60.0
"""How long to wait for the election of a leader."""

RETRY_SECONDS = 0.25

T = TypeVar("T")


class UpgradeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade of a cell has changed."""

    settings: bool
    """Whether the stream lacked settings that this version needs."""
    policy: bool
    """Whether the cell had no policy, and has the one of the settings now."""
    format: int
    switched: bool
    """Whether records are saved in a newer format from now on."""


class FormatUnknown(StoreError):
    """Some processes do not know the format that a cell is to be switched to."""

    template = "format {format} is not known to {members}: upgrade these processes first; nothing was switched"
    format: int
    members: tuple[str, ...]


@asynccontextmanager
async def run_cell(
    settings: NatsSettings, directory: Path, *, is_shared: bool = False, role: MemberRole | None = None
) -> AsyncIterator[tuple[NatsStore, NatsLease]]:
    """Open a cell for the only service that changes it; yield the store and the lease that says so.

    A shared cell has several control nodes. Each can change it, and the lease, which is not held yet, says which one
    acts by time. Raises CellInUse while the cell is being migrated. If the stream was restored to an older state than
    this process has read, new epochs begin first.
    """
    with wrap_os_errors(directory):
        prepare_directory(directory, (LOCK_FILE, MEMBER_FILE))
        lock = lock_directory(directory)
    try:
        member = read_member(directory)
        role = role or (MemberRole.CONTROL if is_shared else MemberRole.SINGLE)
        store = await NatsStore.open(settings, directory)
        try:
            await store.announce(member, role)
            if store.reverted is not None:
                log.warning("the stream was restored to an older state (%s); beginning new epochs", store.reverted)
                await _begin_epochs(store)
                await store.aclose()
                store = await NatsStore.open(settings, directory)
                await store.announce(member, role)
            yield store, store.lease(CLOCK, member) if is_shared else await store.claim(member)
        finally:
            await store.aclose()
    finally:
        lock.release()


async def renew_cell(settings: NatsSettings) -> int:
    """Begin new epochs in a cell whose stream was restored, and return in how many scopes; the fleet is held.

    All processes of the cell drop what they have read of it, and start again.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-") as temporary:
        async with run_cell(settings, Path(temporary), is_shared=True, role=MemberRole.COMMAND) as (store, _):
            return await _begin_epochs(store)


async def _begin_epochs(store: NatsStore) -> int:
    """Hold the fleet, begin new epochs, and only then give the cell a new id: a crash in between repeats all of it."""
    try:
        async with _run_fleet(store, Settings()) as fleet:
            if fleet.holds.current is None or fleet.holds.current.by != RESTORE:
                await hold_restored(fleet, RESTORED)
            await begin_epochs(fleet, RESTORED)
            count = sum(1 for _ in fleet.replica.views())
    except SAVE_ERRORS as error:
        raise StoreUnavailable("the restored cell", str(error)) from error
    await store.renew()
    return count


async def init_cell(settings: NatsSettings) -> bool:
    """Create a cell; return False if it exists."""
    async with connect_cell(settings) as stream:
        is_created = await _retry_while_electing(lambda: stream.create(settings.replicas, token_hex(12)))
        await _retry_while_electing(lambda: stream.test_write(0))
        return is_created


async def _retry_while_electing(operation: Callable[[], Awaitable[T]]) -> T:
    """Carry out an operation. Servers or a stream that have just started may need a while to elect a leader."""
    deadline = asyncio.get_running_loop().time() + ELECTION_SECONDS
    while True:
        try:
            return await operation()
        except (NatsError, StoreUnavailable) as error:
            is_final = isinstance(error, ApiRefused) and error.code not in NOT_SAVED
            if is_final or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def prepare_cell(settings: Settings, directory: Path) -> tuple[bool, bool]:
    """Give a cell what it lacks: its first admin token, in the data directory, and the policy of the settings.

    Return whether it lacked a token, and a policy.
    """
    return await _retry_while_electing(lambda: _prepare(settings, directory))


async def _prepare(settings: Settings, directory: Path) -> tuple[bool, bool]:
    async with _run_command(settings) as fleet:
        has_token = bool(fleet.tokens.all())
        if not has_token:
            with wrap_os_errors(directory):
                prepare_directory(directory, (LOCK_FILE, MEMBER_FILE))
            await adopt_token(fleet, directory, by="cluster init")
        is_new = await fleet.cluster.policy.create(settings.policy, by="cluster init", now=fleet.clock.now())
        return not has_token, is_new


async def read_policy(settings: Settings) -> PolicySettings | None:
    """Return the policy of a cell; None if it has none, and each control node applies its own settings."""
    async with _run_command(settings) as fleet:
        return fleet.cluster.policy.current


async def change_policy(
    settings: Settings, values: Mapping[str, object], *, by: str, why: str
) -> tuple[bool, PolicySettings]:
    """Change some values of the policy; return whether one is different now, and the policy."""
    async with _run_command(settings) as fleet:
        is_changed = await fleet.cluster.policy.change(values, settings.policy, by=by, why=why, now=fleet.clock.now())
        return is_changed, fleet.cluster.policy.current or settings.policy


async def upgrade_cell(settings: Settings, directory: Path) -> UpgradeReport:
    """Correct the settings of the stream, add what a cell of an older version lacks, and switch to the newest format.

    Raises FormatUnknown if a control node or a host does not know that format.
    """
    async with connect_cell(settings.nats) as stream:
        state = await stream.read_state()
        is_corrected = await stream.update_settings(state.details["config"])
    _, has_policy = await prepare_cell(settings, directory)
    async with connect_cell(settings.nats) as stream:
        await stream.read_state()
        if too_old := await find_too_old(stream):
            raise FormatUnknown(stream.newest_format, tuple(too_old))
        is_switched = await stream.switch_format()
        return UpgradeReport(
            settings=is_corrected, policy=has_policy, format=stream.newest_format, switched=is_switched
        )


async def find_too_old(stream: CellStream) -> list[str]:
    """Return the processes that do not know the newest format that this one knows."""
    members = [each.report for each in await read_members(stream)]
    found = [each.name for each in members if each.format < stream.newest_format]
    # The reports about hosts come from one control node, and late; the records of the hosts are always there.
    for subject in sorted(await stream.count_messages(f"$KV.{stream.subjects.cell}.{RecordKind.HOST.value}.>")):
        message = await stream.read_last(subject)
        if message is not None and not message.is_marker:
            record = msgspec.json.decode(message.data, type=HostRecord)
            if record.process and record.format < stream.newest_format:
                found.append(f"host {stream.subjects.key_of(subject).id} ({record.holder})")
    return found


@asynccontextmanager
async def _run_command(settings: Settings) -> AsyncIterator[Fleet]:
    """Run the fleet of a cell for one command, in a directory of its own: a service may use the other one."""
    with tempfile.TemporaryDirectory(prefix="forewarn-") as temporary:
        async with (
            run_cell(settings.nats, Path(temporary), is_shared=True, role=MemberRole.COMMAND) as (store, _),
            _run_fleet(store, settings) as fleet,
        ):
            yield fleet


def _run_fleet(store: NatsStore, settings: Settings) -> AbstractAsyncContextManager[Fleet]:
    """Run the fleet of a cell without duties."""
    clock = SystemClock()
    return Fleet.run(
        store=store,
        platform=SimulatedPlatform(clock),
        clock=clock,
        policy=create_policy(settings),
        has_duties=False,
    )


@asynccontextmanager
async def connect_cell(settings: NatsSettings) -> AsyncIterator[CellStream]:
    """Connect to the stream of a cell, without opening its store."""
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    try:
        check_version(connection.version)
        yield stream
    except NatsError as error:
        raise stream.unavailable(error) from error
    finally:
        await connection.aclose()
