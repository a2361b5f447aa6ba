"""The data directory of a service: whose data it has, and which store it opens."""

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.compose import run_service
from forewarn.compose.data_directory import (
    PRESET_FILE,
    DataDirectoryInUse,
    EmulatorNotAllowed,
    InvalidDataDirectory,
    claim_directory,
    open_store,
)
from forewarn.files import UnsafeDirectory
from forewarn.platform.processes import BackgroundProcess, ProcessFiles
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, PRODUCTION, Settings
from forewarn.store.memory import MemoryStore
from forewarn.store.sqlite.store import SqliteStore
from tests.compose.reporters import RecordingReporter

REPORT = v1.AddReport(kind=v1.ReportKind.EXAM, subject="./handler", passed=True, summary="1 scenario: 1 passed.")


def test_first_service_writes_its_preset_and_the_next_one_says_nothing(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    for _ in range(2):
        claim_directory(tmp_path, EMULATOR, reporter)
        assert (tmp_path / PRESET_FILE).read_text() == "emulator\n"
    assert reporter.sentences == []


def test_emulator_is_refused_the_data_of_a_production_service(tmp_path: Path) -> None:
    claim_directory(tmp_path, PRODUCTION, RecordingReporter())
    with pytest.raises(EmulatorNotAllowed) as refused:
        claim_directory(tmp_path, EMULATOR, RecordingReporter())
    assert refused.value.directory == tmp_path
    assert str(tmp_path / PRESET_FILE) in str(refused.value), "it says what to remove"
    assert (tmp_path / PRESET_FILE).read_text() == "production\n"


def test_production_service_takes_over_the_data_of_an_emulator_and_says_so(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    claim_directory(tmp_path, EMULATOR, reporter)
    claim_directory(tmp_path, PRODUCTION, reporter)
    assert (tmp_path / PRESET_FILE).read_text() == "production\n"
    (sentence,) = reporter.sentences
    assert str(tmp_path) in sentence


async def test_store_is_opened_in_the_directory_of_the_settings(tmp_path: Path) -> None:
    async with open_store(Settings(data=tmp_path / "data"), {}) as (directory, store, _):
        assert (directory, type(store)) == (tmp_path / "data", SqliteStore)
    assert (tmp_path / "data/forewarn.db").is_file()


async def test_store_is_opened_in_the_users_directory_where_none_is_set(tmp_path: Path) -> None:
    async with open_store(Settings(), {"XDG_DATA_HOME": str(tmp_path)}) as (directory, _, _):
        assert directory == tmp_path / "forewarn"


async def test_ephemeral_directory_is_removed_with_everything_in_it(tmp_path: Path) -> None:
    async with open_store(Settings(ephemeral=True), {"XDG_RUNTIME_DIR": str(tmp_path)}) as (directory, store, _):
        assert (directory.parent, type(store)) == (tmp_path / "forewarn", MemoryStore)
        (directory / "token").write_text("x")
    assert not directory.exists()


async def test_second_service_on_the_same_data_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    async with open_store(settings, {}):
        with pytest.raises(DataDirectoryInUse) as refused:
            async with open_store(settings, {}):
                raise AssertionError("it is open twice")
    assert (refused.value.directory, refused.value.pid, refused.value.address) == (tmp_path, os.getpid(), "")
    assert DataDirectoryInUse(tmp_path, None, None).process == "unknown"


async def test_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidDataDirectory) as refused:
        async with open_store(Settings(data=tmp_path / "file"), {}):
            raise AssertionError("it is open")
    assert refused.value.path == tmp_path / "file"


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def modes_in(data: Path) -> dict[str, int]:
    return {str(path.relative_to(data)): stat.S_IMODE(path.lstat().st_mode) for path in data.rglob("*")}


async def run_once(data: Path) -> dict[str, int]:
    """Run a service that uses everything of its directory; return the modes of what is there while it runs."""
    flags = {"data": str(data), "listen": "127.0.0.1:0", "operator": "127.0.0.1:0"}
    settings = load_settings(EMULATOR, flags=flags, environ={}, file=None).settings
    async with run_service(settings, EMULATOR, environ={}, reporter=RecordingReporter()) as running:
        scope, vm = next((view.id, vm.name) for view in running.fleet.replica.views() for vm in view.roster or ())
        url, token = running.operator_url, (data / "token").read_text().strip()
        await asyncio.to_thread(ApiClient(url, token).open_socket, f"{scope}/{vm}")
        await asyncio.to_thread(ApiClient(url, token).add_report, REPORT)
        (data / "work").mkdir(mode=0o700, exist_ok=True)
        files = ProcessFiles(data / "work", "event.web-0.carry-out")
        with BackgroundProcess.start(["true"], {}, b"", files, attempt=1, now=running.fleet.clock.now()) as process:
            await process.wait()
        return modes_in(data)


EXPECTED_NAMES = {
    "forewarn.db",
    "forewarn.db-shm",
    "forewarn.db-wal",
    "forewarn.lock",
    "preset",
    "reports",
    "service.json",
    "sockets",
    "token",
    "work",
}


@pytest.mark.process
@pytest.mark.parametrize("mask", [0, 0o077])
async def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        modes = await run_once(tmp_path / "new/data")
    assert {name for name in modes if "/" not in name} == EXPECTED_NAMES
    assert len(modes) > len(EXPECTED_NAMES) + 4, "a socket, a report, and the files of a program"
    assert modes == {name: 0o700 if name in {"reports", "sockets", "work"} else 0o600 for name in modes}
    assert [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("new", "new/data")] == [0o700, 0o700]


@pytest.mark.process
async def test_symbolic_link_in_place_of_any_file_is_refused_and_not_followed(tmp_path: Path) -> None:
    names = await run_once(tmp_path / "data")
    for number, name in enumerate(sorted(names)):
        data, target = tmp_path / f"copy-{number}", tmp_path / f"target-{number}"
        shutil.copytree(tmp_path / "data", data, ignore=shutil.ignore_patterns("*.sock"))
        place = data / name
        place.parent.mkdir(exist_ok=True)
        if place.is_dir():
            place.rename(target)
        else:
            target.write_text("of another user")
            place.unlink(missing_ok=True)
        place.symlink_to(target)
        before = sorted(target.iterdir()) if target.is_dir() else target.read_text()
        with pytest.raises(UnsafeDirectory, match="is a symbolic link") as refused:
            await run_once(data)
        assert f"run `rm {place}`" in str(refused.value), name
        assert (sorted(target.iterdir()) if target.is_dir() else target.read_text()) == before
