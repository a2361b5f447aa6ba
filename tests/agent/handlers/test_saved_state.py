"""Saved state of a handler: what ran before prepare is what recover restores."""

import logging
from pathlib import Path

import pytest

from forewarn.agent.handlers.saved_state import SavedStateFile

ALL = ("a", "b", "c")


def test_what_ran_is_restored_also_after_a_restart(tmp_path: Path) -> None:
    assert SavedStateFile(tmp_path / "new", "web").save_running(("b", "a")) == ("b", "a")
    assert SavedStateFile(tmp_path / "new", "web").to_restore(ALL) == ("b", "a")


def test_everything_is_restored_where_nothing_is_known(tmp_path: Path) -> None:
    assert SavedStateFile(tmp_path, "web").to_restore(ALL) == ALL
    (tmp_path / "web.json").write_text("nonsense")
    assert SavedStateFile(tmp_path, "web").to_restore(ALL) == ALL


def test_nothing_is_restored_where_nothing_was_touched(tmp_path: Path) -> None:
    file = SavedStateFile(tmp_path, "web")
    file.begin()
    assert file.to_restore(ALL) == ()


def test_further_try_adds_to_the_first(tmp_path: Path) -> None:
    """The first try may have stopped some already, so that they do not run in the second."""
    file = SavedStateFile(tmp_path, "web")
    file.save_running(("a", "b"))
    file.begin()
    assert file.save_running(("b", "c")) == ("a", "b", "c")


def test_next_event_begins_from_what_runs_then(tmp_path: Path) -> None:
    file = SavedStateFile(tmp_path, "web")
    file.save_running(("a", "b"))
    file.mark_restored()
    assert file.to_restore(ALL) == ("a", "b"), "the same may be asked for once more"
    assert SavedStateFile(tmp_path, "web").save_running(("c",)) == ("c",)


def test_thing_that_is_not_configured_any_more_is_not_restored(tmp_path: Path) -> None:
    file = SavedStateFile(tmp_path, "web")
    file.save_running(("a", "old"))
    assert file.to_restore(ALL) == ("a",)


def test_disk_that_takes_nothing_is_logged_and_memory_has_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    file = SavedStateFile(tmp_path / "file", "web")
    with caplog.at_level(logging.WARNING, logger="forewarn.agent"):
        file.save_running(("a",))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert file.to_restore(ALL) == ("a",)
