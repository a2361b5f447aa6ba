"""The data directory of a service: whose data it has, and which store it opens."""

import os
from pathlib import Path

import pytest

from forewarn.compose.data_directory import (
    PRESET_FILE,
    DataDirectoryInUse,
    EmulatorNotAllowed,
    InvalidDataDirectory,
    claim_directory,
    open_store,
)
from forewarn.settings.schema import EMULATOR, PRODUCTION, Settings
from forewarn.store.memory import MemoryStore
from forewarn.store.sqlite.store import SqliteStore
from tests.compose.reporters import RecordingReporter


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
    async with open_store(Settings(data=tmp_path / "data"), {}) as (directory, store):
        assert (directory, type(store)) == (tmp_path / "data", SqliteStore)
    assert (tmp_path / "data/forewarn.db").is_file()


async def test_store_is_opened_in_the_users_directory_where_none_is_set(tmp_path: Path) -> None:
    async with open_store(Settings(), {"XDG_DATA_HOME": str(tmp_path)}) as (directory, _):
        assert directory == tmp_path / "forewarn"


async def test_ephemeral_directory_is_removed_with_everything_in_it(tmp_path: Path) -> None:
    async with open_store(Settings(ephemeral=True), {"XDG_RUNTIME_DIR": str(tmp_path)}) as (directory, store):
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
