"""Marker files: when they appeared or were written to."""

import os
import time
from pathlib import Path

import pytest

from forewarn.testing.exam import markers
from forewarn.testing.exam.markers import Marker, MarkerWatcher


def test_marker_changes_when_it_appears_and_when_it_is_written_to(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "ready")
    marker.poll()
    assert len(marker.changes) == 0
    marker.path.write_text("")
    for _ in range(2):
        marker.poll()
    assert len(marker.changes) == 1
    marker.path.write_text("more")
    marker.poll()
    assert len(marker.changes) == 2
    marker.path.unlink()
    marker.poll()
    assert len(marker.changes) == 2, "to remove it is no change"
    marker.path.write_text("more")
    marker.poll()
    assert len(marker.changes) == 3


def test_file_that_was_there_before_has_not_changed(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("")
    marker = Marker(tmp_path / "ready")
    marker.poll()
    assert marker.changes == ()


def test_change_has_the_time_of_the_file_and_not_of_the_poll(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "ready")
    marker.path.write_text("")
    now = time.time()
    os.utime(marker.path, (now - 100, now - 100))
    before = time.monotonic()
    marker.poll()
    assert before - 101 < marker.changes[0] < before - 99


def test_markers_are_watched_until_the_context_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "POLL_INTERVAL", 0.001)
    marker = Marker(tmp_path / "ready")
    deadline = time.monotonic() + 60
    with MarkerWatcher(None, marker):
        marker.path.write_text("")
        while not marker.changes and time.monotonic() < deadline:
            time.sleep(0.001)
    assert len(marker.changes) == 1
    with MarkerWatcher(None):
        pass
