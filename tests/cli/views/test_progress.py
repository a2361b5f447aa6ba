"""The progress bar."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from forewarn.cli.views.progress import MIN_TOTAL, ProgressBar, draw_status

SHOW_CURSOR = "\x1b[?25h"


class Screen(io.StringIO):
    """A terminal that collects its output."""

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True


@contextmanager
def screen() -> Iterator[Screen]:
    with patch.object(sys, "stderr", Screen()) as made, patch.dict(os.environ, {"TERM": "xterm"}):
        yield made


def fill_in_vain() -> None:
    with ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL)
        raise RuntimeError("the disk is full")


def test_bar_stops_when_the_work_fails() -> None:
    """Otherwise it would be drawn over the message, and the cursor would stay hidden."""
    with screen() as seen, pytest.raises(RuntimeError, match="the disk is full"):
        fill_in_vain()
    assert "Filling the fleet" in seen.getvalue()
    assert seen.getvalue().endswith(SHOW_CURSOR)


def test_bar_stops_at_its_end() -> None:
    with screen() as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(MIN_TOTAL, MIN_TOTAL)
        assert f"{MIN_TOTAL}/{MIN_TOTAL}" in seen.getvalue()
        assert seen.getvalue().endswith(SHOW_CURSOR)


def test_short_work_has_no_bar() -> None:
    with screen() as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL - 1)
    assert seen.getvalue() == ""


def test_without_a_terminal_writes_end_false_writes_nothing() -> None:
    with patch.object(sys, "stderr", io.StringIO()) as seen, ProgressBar("Checking", writes_end=False) as bar:
        bar.show(MIN_TOTAL, MIN_TOTAL)
    assert seen.getvalue() == ""


def test_without_a_terminal_one_line_shows_the_progress() -> None:
    with patch.object(sys, "stderr", io.StringIO()) as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL)
        bar.show(MIN_TOTAL, MIN_TOTAL)
    assert f"{MIN_TOTAL}/{MIN_TOTAL}" in seen.getvalue()
    assert seen.getvalue().count("Filling the fleet") == 1


def test_line_is_cut_to_the_terminal_but_not_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    for line, end in (
        ("1234567890", ""),
        ("12345678901", ""),
        ("12345678901", " end\n"),
        ("a\nb\x1b[2J", ""),
        ("", ""),
    ):
        draw_status(line, end)
    assert capsys.readouterr().err.split("\r\x1b[K") == [
        "",
        "1234567890",
        "123456789…",
        "12345… end\n",
        "a\\nb\\x1b[…",
        "",
    ]
