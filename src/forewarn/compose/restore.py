"""Restore of a backup into a data directory, such that nothing happens twice and guests never see time go back."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.compose.backup import StepProgress, check_owner
from forewarn.compose.data_directory import PRESET_FILE, SERVICE_NAMES
from forewarn.compose.platforms import HostSet, create_platform, create_policy
from forewarn.compose.restored_fleet import UnfinishedWork, begin_epochs, hold_restored
from forewarn.core.base_error import BaseError
from forewarn.core.errors import CoreError
from forewarn.core.restore import RESTORE
from forewarn.core.scope import Hold
from forewarn.files import prepare_directory, read_file, write_file
from forewarn.fleet import fleet_state, hold_record, scopes
from forewarn.fleet.service import Fleet
from forewarn.fleet.tokens import Token
from forewarn.settings.schema import PRODUCTION, Settings
from forewarn.store.port import RecordKind, Store, StoreError
from forewarn.store.sqlite.backup import BackupSource, check_backup, copy_database, forget_origin
from forewarn.store.sqlite.database import DATABASE_FILE, open_unused, prepare_database
from forewarn.store.sqlite.directory import lock_directory, wrap_os_errors
from forewarn.store.sqlite.reader import Reader
from forewarn.store.sqlite.restore import commit_restore, create_staging, finish_restore
from forewarn.store.sqlite.store import STORE_FILES, SqliteStore


class BackupNotFound(BaseError):
    """The file of the backup does not exist."""

    template = "{file} does not exist: name a file that `forewarn backup` has written"
    file: Path


class InvalidBackup(BaseError):
    """The file cannot be restored."""

    template = "{file} cannot be restored: {reason}. Choose another backup; the data directory was not changed"
    file: Path
    reason: str


class NamedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token in the report of a restore."""

    id: str
    name: str


class LostHold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that the replaced data had and the backup has not; `scope` None is the whole fleet."""

    scope: str | None
    by: str
    reason: str


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore has done, and what an operator must look at."""

    file: str
    data: str
    made_at: datetime | None
    """When the backup was made; None if it does not say so."""
    replaced: str | None
    """The directory with the replaced data; None if there was none."""
    replaced_problem: str | None
    """Why the replaced data could not be read; None if it could, or if there was none."""
    scopes: int
    hold: str
    revoked_tokens: tuple[NamedToken, ...]
    """Revoked since the backup, and revoked again."""
    unconfirmed_tokens: tuple[NamedToken, ...]
    """Valid in the backup and unknown to the replaced data, which cannot tell whether they were revoked."""
    lost_tokens: tuple[NamedToken, ...]
    """Created since the backup: they do not work any more."""
    lost_holds: tuple[LostHold, ...]
    unknown_work: tuple[UnfinishedWork, ...]
    canceled_events: tuple[UnfinishedWork, ...]
    """Scheduled events that a hold does not stop, such as requests of users."""


class _ReplacedData(msgspec.Struct, frozen=True, kw_only=True):
    """What the replaced data knows and the backup may not."""

    tokens: Mapping[str, Token] = {}
    incarnations: Mapping[str, int] = {}
    holds: Mapping[str | None, Hold] = {}
    problem: str | None = None


async def restore_backup(file: Path, directory: Path, *, on_progress: StepProgress) -> RestoreReport:
    """Replace the data in a directory by a backup. Until the end, and after a crash, the old data stays valid."""
    check_owner(directory)
    on_progress("Checking the backup", 0, 1)
    origin = await asyncio.to_thread(_check_backup, file)
    with ExitStack() as stack:
        with wrap_os_errors(directory):
            prepare_directory(directory, (*STORE_FILES, *SERVICE_NAMES))
            stack.callback(lock_directory(directory).release)
        staging = create_staging(directory)
        stack.callback(finish_restore, directory)  # removes what an error leaves unfinished
        replaced = await asyncio.to_thread(_read_replaced, directory / DATABASE_FILE)
        await asyncio.to_thread(_copy, file, staging, on_progress)
        report = await _adapt(file, staging, origin, replaced, on_progress)
        _write_preset(directory, staging, origin)
        old = commit_restore(directory, now=SystemClock().now())
        return msgspec.structs.replace(report, replaced=None if old is None else str(old))


def _check_backup(file: Path) -> BackupSource | None:
    if not file.is_file():
        raise BackupNotFound(file)
    try:
        return check_backup(file)
    except StoreError as error:
        raise InvalidBackup(file, str(error)) from error


def _copy(file: Path, staging: Path, on_progress: StepProgress) -> None:
    database = staging / DATABASE_FILE
    database.touch(mode=0o600)
    with closing(open_unused(file)) as original:
        copy_database(original, file, database, lambda done, total: on_progress("Copying the backup", done, total))
    forget_origin(database)
    prepare_database(database)


def _read_replaced(database: Path) -> _ReplacedData:
    """Read what the old data knows; data that cannot be read must not prevent a restore."""
    if not database.exists():
        return _ReplacedData()
    tokens: dict[str, Token] = {}
    incarnations: dict[str, int] = {}
    holds: dict[str | None, Hold] = {}
    try:
        with closing(Reader(database, open_unused)) as reader:
            for record in reader.records():
                match record.key.kind:
                    case RecordKind.TOKEN:
                        tokens[record.key.id] = msgspec.json.decode(record.value, type=Token)
                    case RecordKind.SCOPE:
                        scope = scopes.decode(record.value)
                        incarnations[scope.id] = scope.incarnation
                        if scope.hold is not None:
                            holds[scope.id] = scope.hold
                    case RecordKind.FLEET if record.key == hold_record.FLEET_HOLD:
                        if (hold := hold_record.decode(record.value).hold) is not None:
                            holds[None] = hold
    except (StoreError, CoreError, msgspec.MsgspecError) as error:
        return _ReplacedData(problem=str(error))
    return _ReplacedData(tokens=tokens, incarnations=incarnations, holds=holds)


async def _adapt(
    file: Path, staging: Path, origin: BackupSource | None, replaced: _ReplacedData, on_progress: StepProgress
) -> RestoreReport:
    """Change the copied data so that a service can continue with it."""
    made_at = None if origin is None else origin.made_at
    why = f"restored from {file.name}" + ("" if made_at is None else f", a backup of {made_at:%Y-%m-%d %H:%M:%SZ}")
    async with _open_fleet(staging) as fleet:
        lost_holds = _find_lost_holds(fleet, replaced)
        await hold_restored(fleet, why)
        revoked = await _revoke_again(fleet, replaced, why)
        unknown, canceled = await begin_epochs(
            fleet, why, shown=replaced.incarnations, on_progress=partial(on_progress, "Beginning new epochs")
        )
        known = {token.id: token for token in fleet.tokens.all()}
        now = SystemClock().now()
        return RestoreReport(
            file=str(file),
            data=str(staging.parent),
            made_at=made_at,
            replaced=None,
            replaced_problem=replaced.problem,
            scopes=sum(1 for _ in fleet.replica.views()),
            hold="" if fleet.holds.current is None else fleet.holds.current.reason,
            revoked_tokens=revoked,
            unconfirmed_tokens=_named(
                token for token in known.values() if token.is_valid(now=now) and token.id not in replaced.tokens
            ),
            lost_tokens=_named(
                token for token in replaced.tokens.values() if token.is_valid(now=now) and token.id not in known
            ),
            lost_holds=lost_holds,
            unknown_work=unknown,
            canceled_events=canceled,
        )


@asynccontextmanager
async def _open_fleet(directory: Path) -> AsyncIterator[Fleet]:
    """Open the fleet without duties: no time passes for it, and no platform is called."""
    store = await SqliteStore.open(directory)
    try:
        clock = await _create_clock(store)
        settings = Settings()
        platform = create_platform(settings, clock, HostSet(), directory)
        async with Fleet.run(
            store=store, platform=platform, clock=clock, policy=create_policy(settings), has_duties=False
        ) as fleet:
            yield fleet
    finally:
        await store.aclose()


async def _create_clock(store: Store) -> Clock:
    """Return the clock of the data: a manual clock that was moved stays where it was."""
    now = SystemClock().now()
    record = await store.load(fleet_state.FLEET_STATE)
    if record is None or fleet_state.decode(record.value).clock_at is None:
        return SystemClock()
    return ManualClock(await fleet_state.manual_clock_start(store, now=now))


async def _revoke_again(fleet: Fleet, replaced: _ReplacedData, why: str) -> tuple[NamedToken, ...]:
    """Revoke the tokens that were revoked since the backup. Ids come from secrets, so they name the same tokens."""
    known = {token.id: token for token in fleet.tokens.all()}
    again = [
        token
        for token in replaced.tokens.values()
        if token.revoked_at is not None and (token.id not in known or known[token.id].revoked_at is None)
    ]
    for token in again:
        await fleet.tokens.keep_revoked(token, by=RESTORE, why=f"{why}; it had been revoked since")
    return _named(again)


def _find_lost_holds(fleet: Fleet, replaced: _ReplacedData) -> tuple[LostHold, ...]:
    present = {view.id for view in fleet.replica.views() if view.scope is not None and view.scope.hold is not None}
    return tuple(
        LostHold(scope=scope, by=hold.by, reason=hold.reason)
        for scope, hold in replaced.holds.items()
        if (fleet.holds.current is None if scope is None else scope not in present)
    )


def _named(tokens: Iterable[Token]) -> tuple[NamedToken, ...]:
    found = sorted(tokens, key=lambda token: (token.name, token.id))
    return tuple(NamedToken(id=token.id, name=token.name) for token in found)


def _write_preset(directory: Path, staging: Path, origin: BackupSource | None) -> None:
    """Name the preset of the backup, so that the emulator refuses data of real VMs. Production stays production."""
    present = directory / PRESET_FILE
    names = (origin.preset if origin else "", read_file(present).decode().strip() if present.exists() else "")
    if any(names):
        preset = PRODUCTION.name if PRODUCTION.name in names else next(filter(None, names))
        write_file(staging / PRESET_FILE, f"{preset}\n".encode())
