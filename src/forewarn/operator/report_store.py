"""Reports of exams and conformance checks: the newest ones, in memory and in files of the data directory."""

import asyncio
import logging
import secrets
from pathlib import Path

import msgspec

from forewarn.api import v1
from forewarn.core.idempotency import IdempotencyKey, ResultMemory
from forewarn.core.journal import EntryKind
from forewarn.files import read_file, remove_file, write_file
from forewarn.fleet.service import Fleet
from forewarn.operator.errors import ReportNotFound, ReportNotSaved

log = logging.getLogger(__name__)

MAX_REPORTS = 20
"""How many reports are kept, the newest."""

MAX_REPORT_BYTES = 4 * 1024 * 1024
"""The size of a file that is read; a request is smaller."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(v1.Report).decode


class ReportStore:
    """The reports of an emulator. Without a directory they are kept in memory only."""

    def __init__(self, fleet: Fleet, directory: Path | None = None) -> None:
        self._fleet = fleet
        self._directory = directory
        self._reports: dict[str, v1.Report] | None = None
        self._results = ResultMemory[v1.Report]()
        self._lock = asyncio.Lock()

    async def all(self) -> list[v1.ReportSummary]:
        """Return the reports without their findings, newest first."""
        async with self._lock:
            return [_summary(report) for report in reversed((await self._loaded()).values())]

    async def find(self, id_: str) -> v1.Report:
        """Return a report; raise ReportNotFound."""
        async with self._lock:
            if (report := (await self._loaded()).get(id_)) is None:
                raise ReportNotFound(id_, MAX_REPORTS)
            return report

    async def add(self, request: v1.AddReport, *, by: str, idempotency_key: IdempotencyKey | None = None) -> v1.Report:
        """Add a report, and remove the oldest if there are too many. A repeated request returns the same report."""
        async with self._lock:
            if (previous := self._results.find(idempotency_key)) is not None:
                return previous
            reports = await self._loaded()
            report = v1.Report(
                id=f"R{secrets.token_hex(5)}",
                created_by=by,
                created_at=self._fleet.tokens.wall_clock.now(),
                **{field: getattr(request, field) for field in request.__struct_fields__},
            )
            try:
                await asyncio.to_thread(self._save, report)
            except OSError as error:
                raise ReportNotSaved(error.strerror or str(error)) from error
            reports[report.id] = report
            while len(reports) > MAX_REPORTS:
                await asyncio.to_thread(self._remove, reports.pop(next(iter(reports))).id)
            self._results.add(idempotency_key, report)
            facts = {"report": report.id, "kind": report.kind.value, "passed": "yes" if report.passed else "no"}
            await self._fleet.emulator.journal.record(EntryKind.REPORT_ADDED, by=by, facts=facts)
            return report

    async def _loaded(self) -> dict[str, v1.Report]:
        """Return the reports, oldest first; the first call reads the files."""
        if self._reports is None:
            self._reports = await asyncio.to_thread(self._load)
        return self._reports

    def _load(self) -> dict[str, v1.Report]:
        found: list[v1.Report] = []
        for path in () if self._directory is None else sorted(self._directory.glob("R*.json")):
            try:
                found.append(_decode(read_file(path, MAX_REPORT_BYTES)))
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                log.warning("could not read report %s, ignoring it: %s", path, error)
        found.sort(key=lambda report: report.created_at)
        return {report.id: report for report in found[-MAX_REPORTS:]}

    def _save(self, report: v1.Report) -> None:
        if self._directory is not None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_file(self._directory / f"{report.id}.json", _encode(report))

    def _remove(self, id_: str) -> None:
        if self._directory is not None:
            try:
                remove_file(self._directory / f"{id_}.json")
            except OSError as error:
                log.warning("could not remove report %s: %s", id_, error)


def _summary(report: v1.Report) -> v1.ReportSummary:
    fields = v1.ReportSummary.__struct_fields__
    return v1.ReportSummary(**{field: getattr(report, field) for field in fields})
