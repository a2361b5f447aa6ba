"""The initial fleet: an empty service is filled once, from a file, the demonstration or a loader."""

from pathlib import Path

import pytest

from forewarn.api.fleet_file import CreationContext
from forewarn.compose import initial_fleet
from forewarn.compose.initial_fleet import GIVEN_FLEET, fill_if_empty
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.settings.file_reader import FileError
from forewarn.settings.schema import Settings
from forewarn.settings.types import DEMONSTRATION
from forewarn.store.memory import MemoryStore
from tests.compose.reporters import RecordingReporter
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import read_journal, run_fleet

FILE = '[[scopes]]\nname = "db"\nkind = "standalone"\n[[scopes]]\nname = "cache"\nkind = "standalone"\n'


async def creators(store: MemoryStore) -> dict[str, str]:
    """Return the scopes that were created, and by whom."""
    rows = await read_journal(store)
    return {row.key.id: row.entry.by for row in rows if row.entry.kind is EntryKind.SCOPE_CREATED}


async def test_fleet_file_is_read_once(tmp_path: Path) -> None:
    file, reporter, store = tmp_path / "fleet.toml", RecordingReporter(), MemoryStore()
    file.write_text(FILE)
    async with run_fleet(store=store) as fleet:
        await fill_if_empty(fleet, Settings(fleet=file), reporter)
        assert sorted(view.id for view in fleet.replica.views()) == ["cache", "db"]
        file.write_text("this is no TOML any more")
        await fill_if_empty(fleet, Settings(fleet=file), reporter)
    assert await creators(store) == {"db": str(file), "cache": str(file)}
    assert (reporter.ignored, reporter.progress[-1]) == ([file], (2, 2))


async def test_demonstration_fleet_is_built_in() -> None:
    async with run_fleet() as fleet:
        await fill_if_empty(fleet, Settings(fleet=DEMONSTRATION), RecordingReporter())
        assert fleet.replica.vms == 15


async def test_fleet_without_a_file_is_empty_and_counts_as_filled() -> None:
    reporter = RecordingReporter()
    async with run_fleet() as fleet:
        await fill_if_empty(fleet, Settings(fleet=None), reporter)
        assert (fleet.replica.vms, fleet.inventory.is_filled) == (0, True)
        await fill_if_empty(fleet, Settings(fleet=DEMONSTRATION), reporter)
        assert (fleet.replica.vms, reporter.ignored) == (0, [])


async def test_loader_takes_the_place_of_the_file() -> None:
    store = MemoryStore()

    def load(context: CreationContext) -> tuple[Scope, ...]:
        return (web_scope(),)

    async with run_fleet(store=store) as fleet:
        await fill_if_empty(fleet, Settings(fleet=Path("/no/such/file")), RecordingReporter(), load)
    assert await creators(store) == {"web": GIVEN_FLEET}


@pytest.mark.parametrize("content", [None, b"scopes = [", b"#" * 100], ids=["missing", "invalid", "too large"])
async def test_wrong_file_leaves_a_fleet_that_can_still_be_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.setattr(initial_fleet, "MAX_FLEET_FILE_BYTES", 50)
    file = tmp_path / "fleet.toml"
    if content is not None:
        file.write_bytes(content)
    async with run_fleet() as fleet:
        with pytest.raises(FileError) as refused:
            await fill_if_empty(fleet, Settings(fleet=file), RecordingReporter())
        assert refused.value.file == str(file)
        assert not fleet.inventory.is_filled
