"""Import jobs: one at a time, in the background, completed even if the client disconnects."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_file import MAX_FLEET_VMS, FleetFormat, parse_fleet
from forewarn.core.scope import Scope
from forewarn.fleet.errors import FleetError, OutcomeUnknown, SaveFailed
from forewarn.fleet.event_loop import clear_gradually, iterate_gradually, refreeze_gc
from forewarn.fleet.importer import Difference, apply_import, compare_fleet
from forewarn.fleet.service import Fleet
from forewarn.operator.errors import (
    ImportCanceled,
    ImportConflict,
    ImportFailed,
    ImportNotFound,
    InvalidFleetFile,
    OperatorError,
)
from forewarn.operator.process_worker import ProgressCallback, run_in_process, without_copy
from forewarn.settings.file_reader import FileError

log = logging.getLogger(__name__)

SMALL_FILE_BYTES = 32 * 1024
"""Files up to this size are parsed in a thread; larger ones need a separate process."""

SMALL_FILE_TEMPLATES = 8
"""A small file with more `count`s than this may define many VMs, and needs a separate process, too."""

CHUNK_SIZE = 64 * 1024
"""The approximate size of the chunks in which the result is sent."""

_decode = msgspec.json.Decoder(Scope).decode
_encode = msgspec.json.Encoder().encode


class ImportLimits(msgspec.Struct, frozen=True):
    """How many VMs a file can define, and how many seconds it may take to read it."""

    vms: int = MAX_FLEET_VMS
    seconds: float = 300.0


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of an import. The file stays in the chunks in which it was received: joining them takes long."""

    chunks: Sequence[bytes]
    format: FleetFormat
    dry_run: bool
    prune: bool
    by: str


class EncodedImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did or would do. The differences are encoded, in chunks that a comma joins."""

    dry_run: bool
    differences: list[bytes]
    unchanged: int
    refused: int


class ImportJob:
    """An import from its start to its result or error. Any number of clients can follow it."""

    def __init__(self, fleet: Fleet, request: ImportRequest, limits: ImportLimits) -> None:
        self.by = request.by
        self.done = 0
        self.total = 0
        self.result: EncodedImportResult | None = None
        self.error: OperatorError | FleetError | None = None
        self._fleet = fleet
        self._request = request
        self._limits = limits
        self._changed = asyncio.Event()
        self._canceled_by: str | None = None
        self._reading: asyncio.Task[list[bytes]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is a result or an error."""
        return self.result is not None or self.error is not None

    async def run(self) -> None:
        """Run the import. An error is stored for the clients that follow."""
        try:
            self.result = await self._import()
        except SaveFailed as error:
            self.error = self._failure(f"the next change could not be saved: {error.reason}")
        except OutcomeUnknown as error:
            self.error = OutcomeUnknown(f"{error.reason}, after {self.done} of {self.total} scopes of the import")
        except (OperatorError, FleetError) as error:
            self.error = error
        except Exception as error:
            log.exception("internal error in the import of %s", self.by)
            self.error = self._failure(f"internal error, see the log of the service ({error!r})")
        finally:
            if not self.is_over:
                self.error = self._failure("the service is stopping")
            refreeze_gc()
            self._notify()

    def cancel(self, by: str) -> None:
        """Cancel the import: at once while the file is read or compared, else after the scopes that are being saved."""
        self._canceled_by = self._canceled_by or by
        if self._reading is not None:
            self._reading.cancel()

    def _check_canceled(self) -> None:
        if self._canceled_by is not None:
            raise ImportCanceled(self._canceled_by, self.done, self.total, self._request.dry_run)

    async def _read(self) -> list[bytes]:
        """Read the file; cancelling ends the process that does."""
        self._reading = asyncio.create_task(_parse(self._request, self._fleet.clock.now(), self._limits))
        try:
            return await self._reading
        except asyncio.CancelledError:
            self._reading.cancel()
            self._check_canceled()
            raise
        finally:
            self._reading = None

    def _failure(self, why: str) -> ImportFailed:
        return ImportFailed(self.done, self.total, why)

    async def _import(self) -> EncodedImportResult:
        parsed = await self._read()
        self._check_canceled()
        scopes = [_decode(scope) async for scope in iterate_gradually(parsed)]
        if not self._request.prune:
            await self._check_names(scopes)
        result = await self._apply(scopes)
        await clear_gradually(scopes)
        return result

    async def _apply(self, scopes: list[Scope]) -> EncodedImportResult:
        request, report = self._request, _DifferenceWriter()
        on_differences = report.write if request.dry_run else None
        found = await compare_fleet(self._fleet.replica, scopes, prune=request.prune, report=on_differences)
        self._progress(0, len(found.wanted) + len(found.unwanted))
        self._check_canceled()
        if not request.dry_run:
            await apply_import(self._fleet, found, by=request.by, on_progress=self._progress, report=report.write)
        return EncodedImportResult(
            dry_run=request.dry_run, differences=report.differences, unchanged=found.unchanged, refused=report.refused
        )

    async def _check_names(self, scopes: list[Scope]) -> None:
        """Refuse a scope whose name differs from an existing one only in case: no fleet file could contain both."""
        async for scope in iterate_gradually(scopes):
            if (other := self._fleet.replica.find_other_case(scope.id)) is not None:
                raise InvalidFleetFile(
                    "", f"scope {scope.id} is in the fleet as {other}; use that spelling, or import with prune"
                )

    def _progress(self, done: int, total: int) -> None:
        """Report the progress, and stop here if the import was canceled."""
        self.done, self.total = done, total
        self._notify()
        if done < total:
            self._check_canceled()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self) -> AsyncIterator[v1.ImportProgress]:
        """Yield the progress, at once and after every change, until the import has ended."""
        while not self.is_over:
            changed = self._changed
            yield v1.ImportProgress(done=self.done, total=self.total)
            await changed.wait()

    async def wait(self) -> EncodedImportResult:
        """Wait for the end; return the result or raise the error."""
        async for _ in self.follow():
            pass
        if self.result is None:
            raise self.error or AssertionError
        return self.result


class _DifferenceWriter:
    """Encodes differences at once, because those of a large fleet would need too much memory as objects."""

    def __init__(self) -> None:
        self.differences: list[bytes] = []
        self.refused = 0

    def write(self, differences: Sequence[Difference]) -> None:
        """Write the differences of a scope."""
        text = b",".join(_encode(_show_difference(one)) for one in differences)
        if self.differences and len(self.differences[-1]) < CHUNK_SIZE:
            self.differences[-1] += b"," + text
        else:
            self.differences.append(text)
        self.refused += sum(bool(one.refused) for one in differences)


def _show_difference(one: Difference) -> v1.Difference:
    return v1.Difference(action=one.what, scope=one.scope, vm=one.vm, fields=one.fields, refusal=one.refused)


class ImportJobs:
    """Starts imports, one at a time, because two would undo each other's changes."""

    def __init__(self, fleet: Fleet, limits: ImportLimits) -> None:
        self._fleet = fleet
        self._limits = limits
        self._running: ImportJob | None = None

    def start(self, request: ImportRequest) -> ImportJob:
        """Start an import, which completes even if the client disconnects."""
        if self._running is not None:
            raise ImportConflict(self._running.by, self._running.done, self._running.total)
        self._running = ImportJob(self._fleet, request, self._limits)
        self._fleet.start_task(self._run(self._running), name=f"import of {request.by}")
        return self._running

    async def cancel(self, *, by: str) -> ImportJob:
        """Cancel the running import, and return it when it has ended."""
        job = self._running
        if job is None:
            raise ImportNotFound
        job.cancel(by)
        async for _ in job.follow():
            pass
        return job

    async def _run(self, job: ImportJob) -> None:
        """Run an import and drop it afterwards, because the file may be large."""
        try:
            await job.run()
        finally:
            self._running = None


async def _parse(request: ImportRequest, at: datetime, limits: ImportLimits) -> list[bytes]:
    """Parse the file without blocking the event loop; return the encoded scopes."""
    parse = partial(parse_fleet, file="", format_=request.format, at=at, max_vms=limits.vms)
    try:
        async with asyncio.timeout(limits.seconds):
            if _is_small(request.chunks):
                return await asyncio.to_thread(parse, b"".join(request.chunks))
            return await run_in_process(partial(_parse_in_process, parse, without_copy(request.chunks)))
    except TimeoutError as error:
        raise InvalidFleetFile(
            "", f"it could not be read within {limits.seconds:g} s; split it, or set imports.time_limit of the service"
        ) from error
    except FileError as error:
        raise InvalidFleetFile(error.key, error.problem, str(error.line or "")) from error
    except EOFError as error:
        raise InvalidFleetFile("", "the process that parsed it died; it may have run out of memory") from error


def _is_small(chunks: Sequence[bytes]) -> bool:
    is_short = sum(map(len, chunks)) <= SMALL_FILE_BYTES
    return is_short and b"".join(chunks).count(b"count") <= SMALL_FILE_TEMPLATES


def _parse_in_process(
    parse: Callable[[bytes], list[bytes]], chunks: Sequence[bytes], _: ProgressCallback
) -> list[bytes]:
    return without_copy(parse(b"".join(chunks)))
