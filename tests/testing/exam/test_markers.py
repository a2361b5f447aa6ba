"""Marker files: when they appeared or were written to."""

import os
import time
from pathlib import Path

import pytest

from forewarn.testing.exam import markers
from forewarn.testing.exam.markers import Marker, MarkerWatcher


def test_marker_changes_when_it_appears_and_when_it_is_written_to(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "ready")
    counts = []
    for content in (None, "", "", "more", None, "more"):
        if content is None:
            marker.path.unlink(missing_ok=True)
        elif not marker.path.exists() or marker.path.read_text() != content:
            marker.path.write_text(content)
        marker.poll()
        counts.append(len(marker.changes))
    assert counts == [0, 1, 1, 2, 2, 3], "to remove it is no change"


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
