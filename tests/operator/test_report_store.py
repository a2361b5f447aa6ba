"""Reports are kept in files, the newest ones only; a repeated request adds none, and a broken file is ignored."""

from pathlib import Path

import msgspec
import pytest

from forewarn.core.errors import KeyConflict
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.operator.errors import ReportNotFound, ReportNotSaved
from forewarn.operator.report_store import MAX_REPORTS, ReportStore
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import read_journal, run_fleet
from tests.operator.sample_report import sample_report


def stored(directory: Path) -> set[str]:
    """Return the ids of the reports in files."""
    return {path.stem for path in directory.glob("reports/*")}


async def test_report_is_read_again_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        added = await ReportStore(fleet, tmp_path / "reports").add(sample_report(), by="ann")
        (tmp_path / "reports" / "Rbroken.json").write_text("{")
        again = ReportStore(fleet, tmp_path / "reports")
        assert [report.id for report in await again.all()] == [added.id]
        assert msgspec.json.encode(await again.find(added.id)) == msgspec.json.encode(added)
    rows = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.REPORT_ADDED]
    assert [(entry.by, entry.facts) for entry in rows] == [
        ("ann", {"report": added.id, "kind": "exam", "passed": "no"})
    ]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_only_the_newest_reports_are_kept(tmp_path: Path, is_stored: bool) -> None:
    async with run_fleet(web_scope()) as fleet:
        reports = ReportStore(fleet, tmp_path / "reports" if is_stored else None)
        added = [await reports.add(sample_report(f"./handler-{n}"), by="ann") for n in range(MAX_REPORTS + 2)]
        kept = [report.id for report in reversed(added)][:MAX_REPORTS]
        assert [report.id for report in await reports.all()] == kept
        with pytest.raises(ReportNotFound):
            await reports.find(added[0].id)
    assert stored(tmp_path) == (set(kept) if is_stored else set())


async def test_repeated_request_adds_one_report() -> None:
    async with run_fleet(web_scope()) as fleet:
        reports, key = ReportStore(fleet), IdempotencyKey("k", "d", "token")
        added = await reports.add(sample_report(), by="ann", idempotency_key=key)
        assert await reports.add(sample_report(), by="ann", idempotency_key=key) is added
        with pytest.raises(KeyConflict):
            await reports.add(sample_report("other"), by="ann", idempotency_key=IdempotencyKey("k", "e", "token"))
        assert len(await reports.all()) == 1


async def test_report_that_cannot_be_written_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file in its place")
    async with run_fleet(web_scope()) as fleet:
        reports = ReportStore(fleet, tmp_path / "reports")
        with pytest.raises(ReportNotSaved):
            await reports.add(sample_report(), by="ann")
        assert await reports.all() == []
