"""Marker files: when they appeared or were written to."""

import os
import threading
import time
from pathlib import Path

import pytest

from forewarn.testing.exam import markers
from forewarn.testing.exam.markers import Marker, MarkerWatcher
from tests.testing.exam.traces import ask, post

GUARD = 60.0


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
    polled = threading.Event()
    monkeypatch.setattr(Marker, "poll", lambda _: polled.set())
    with MarkerWatcher(None, Marker(tmp_path / "ready")):
        assert polled.wait(GUARD)
    with MarkerWatcher(None):
        pass


def test_changes_are_those_until_now(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "ready")
    marker.path.write_text("")
    assert len(marker.changes) == 1, "although no thread has polled since"


def test_marker_is_polled_when_an_approval_arrives(tmp_path: Path) -> None:
    """A handler that prepares for two events and approves each writes the marker twice in a few milliseconds."""
    marker = Marker(tmp_path / "ready")
    watcher = MarkerWatcher(marker)
    approved_at = []
    for event in ("A", "B"):
        with marker.path.open("a") as file:
            file.write("x")
        approved_at.append(time.monotonic())
        watcher.observe(post(approved_at[-1], event))
    assert [at <= approved for at, approved in zip(marker.changes, approved_at, strict=True)] == [True, True]


def test_other_requests_do_not_poll_the_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = Marker(tmp_path / "ready")
    monkeypatch.setattr(marker, "poll", lambda: pytest.fail("it was polled"))
    MarkerWatcher(marker).observe(ask(1.0))


class SlowClocks:
    """The clocks of a process that loses its processor for a second before its second reading."""

    def __init__(self) -> None:
        self.now, self.readings = 100.0, 0

    def monotonic(self) -> float:
        return self._read()

    def time(self) -> float:
        return 1_700_000_000.0 + self._read()

    def _read(self) -> float:
        self.readings += 1
        self.now += 1.0 if self.readings == 2 else 0.001
        return self.now


def test_processor_that_is_lost_between_two_clocks_does_not_delay_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = Marker(tmp_path / "ready")
    marker.path.write_text("")
    written_at = 90.0
    os.utime(marker.path, (1_700_000_000.0 + written_at,) * 2)
    monkeypatch.setattr(markers, "time", SlowClocks())
    assert marker.changes == pytest.approx((written_at,), abs=0.01)
