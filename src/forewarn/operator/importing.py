"""An import while it runs: one at a time, in turns with everything else, and to its end though nobody listens."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_parsing import FleetFormat, parse_fleet
from forewarn.api.written import FleetFileError
from forewarn.core.scope import Scope
from forewarn.fleet.errors import FleetError, SaveFailed
from forewarn.fleet.event_loop import clear_gradually, refreeze_gc, yielding
from forewarn.fleet.importer import Difference, apply_import, compare_fleet
from forewarn.fleet.service import Fleet
from forewarn.operator.elsewhere import Report, done_elsewhere
from forewarn.operator.errors import ImportEnded, ImportRuns, OperatorError, WrongFleetFile

log = logging.getLogger(__name__)

SMALL = 32 * 1024
"""A file of this many bytes is read so quickly that it needs no process of its own."""

PIECE = 64 * 1024
"""How many bytes of the result are sent at a time, more or less."""

_decode = msgspec.json.Decoder(Scope).decode
_encode = msgspec.json.Encoder().encode


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an import."""

    content: bytes
    format: FleetFormat
    dry_run: bool
    prune: bool
    by: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did, or would do; the differences as they are written, in pieces between which a comma goes."""

    dry_run: bool
    differences: list[bytes]
    unchanged: int
    refused: int


class Running:
    """An import, from its beginning to its result or its error. Any number may follow it."""

    def __init__(self, fleet: Fleet, wanted: Wanted) -> None:
        self.by = wanted.by
        self.done = 0
        self.total = 0
        self.outcome: Outcome | None = None
        self.error: OperatorError | FleetError | None = None
        self._fleet = fleet
        self._wanted = wanted
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether there is a result or an error."""
        return self.outcome is not None or self.error is not None

    async def run(self) -> None:
        """Do it. What goes wrong is kept for those who follow; there may be nobody."""
        try:
            self.outcome = await self._import()
        except SaveFailed as error:
            self.error = self._ended(f"what came next could not be saved: {error.why}")
        except (OperatorError, FleetError) as error:
            self.error = error
        except Exception as error:
            log.exception("the import of %s failed", self.by)
            self.error = self._ended(f"for a reason that the log of the service tells ({error!r})")
        finally:
            if not self.is_over:
                self.error = self._ended("the service ends")
            refreeze_gc()
            self._tell()

    def _ended(self, why: str) -> ImportEnded:
        return ImportEnded(self.done, self.total, why)

    async def _import(self) -> Outcome:
        parsed = await _parsed(self._wanted, self._fleet.clock.now())
        scopes = [_decode(scope) async for scope in yielding(parsed)]
        if not self._wanted.prune:
            await self._check_names(scopes)
        outcome = await self._make(scopes)
        await clear_gradually(scopes)
        return outcome

    async def _make(self, scopes: list[Scope]) -> Outcome:
        wanted, report = self._wanted, _Report()
        tell = report.take if wanted.dry_run else None
        found = await compare_fleet(self._fleet.replica, scopes, prune=wanted.prune, report=tell)
        self._progress(0, len(found.wanted) + len(found.unwanted))
        if not wanted.dry_run:
            await apply_import(self._fleet, found, by=wanted.by, on_progress=self._progress, report=report.take)
        return Outcome(
            dry_run=wanted.dry_run, differences=report.differences, unchanged=found.unchanged, refused=report.refused
        )

    async def _check_names(self, scopes: list[Scope]) -> None:
        """Refuse a scope that the fleet has in other letters: both would be there, and no file could have them."""
        async for scope in yielding(scopes):
            if (other := self._fleet.replica.find_other_case(scope.id)) is not None:
                raise WrongFleetFile(
                    "", f"scope {scope.id} is in the fleet as {other}: write it so, or import with prune"
                )

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def followed(self) -> AsyncIterator[v1.ImportProgress]:
        """Give how far it is, at once and whenever that has changed, until it is over."""
        while not self.is_over:
            news = self._news
            yield v1.ImportProgress(done=self.done, total=self.total)
            await news.wait()

    async def ended(self) -> Outcome:
        """Wait for the end; return the result, or raise why there is none."""
        async for _ in self.followed():
            pass
        if self.outcome is None:
            raise self.error or AssertionError
        return self.outcome


class _Report:
    """What an import tells, written at once: as objects, the differences of a large fleet would fill the memory."""

    def __init__(self) -> None:
        self.differences: list[bytes] = []
        self.refused = 0

    def take(self, differences: Sequence[Difference]) -> None:
        """Write the differences of a scope."""
        text = b",".join(_encode(_shown(one)) for one in differences)
        if self.differences and len(self.differences[-1]) < PIECE:
            self.differences[-1] += b"," + text
        else:
            self.differences.append(text)
        self.refused += sum(bool(one.refused) for one in differences)


def _shown(one: Difference) -> v1.Difference:
    return v1.Difference(what=one.what, scope=one.scope, vm=one.vm, fields=one.fields, refused=one.refused)


class Imports:
    """Begins imports, and refuses a second one while one runs: two would undo each other's work."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._running: Running | None = None

    def begin(self, wanted: Wanted) -> Running:
        """Begin an import, which ends even if whoever has asked for it goes away."""
        if self._running is not None:
            raise ImportRuns(self._running.by, self._running.done, self._running.total)
        self._running = Running(self._fleet, wanted)
        self._fleet.start_task(self._run(self._running), name=f"import of {wanted.by}")
        return self._running

    async def _run(self, running: Running) -> None:
        """Run an import, and keep nothing of it afterwards: the file may be large."""
        try:
            await running.run()
        finally:
            self._running = None


async def _parsed(wanted: Wanted, at: datetime) -> list[bytes]:
    """Read the file where that keeps nobody waiting; give the scopes in it, encoded."""
    parse = partial(parse_fleet, wanted.content, file="", format_=wanted.format, at=at)
    try:
        return await (
            asyncio.to_thread(parse) if len(wanted.content) <= SMALL else done_elsewhere(partial(_work, parse))
        )
    except FleetFileError as error:
        raise WrongFleetFile(error.key, error.problem) from error
    except EOFError as error:
        raise WrongFleetFile("", "the process that read it has ended: perhaps there is too little memory") from error


def _work(parse: Callable[[], list[bytes]], _: Report) -> list[bytes]:
    return parse()
