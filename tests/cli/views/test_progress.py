"""The bar that shows how far long work is."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from forewarn.cli.views.progress import MIN_TOTAL, ProgressBar

SHOW_CURSOR = "\x1b[?25h"


class Screen(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@contextmanager
def screen() -> Iterator[Screen]:
    with patch.object(sys, "stderr", Screen()) as made, patch.dict(os.environ, {"TERM": "xterm"}):
        yield made


def fill_in_vain() -> None:
    with ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL)
        raise RuntimeError("the disk is full")


def test_bar_is_taken_away_when_the_work_fails() -> None:
    """Else it would go on being drawn over the message, and the cursor would stay hidden."""
    with screen() as seen, pytest.raises(RuntimeError, match="the disk is full"):
        fill_in_vain()
    assert "Filling the fleet" in seen.getvalue()
    assert seen.getvalue().endswith(SHOW_CURSOR)


def test_bar_that_has_come_to_its_end_is_taken_away() -> None:
    with screen() as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(MIN_TOTAL, MIN_TOTAL)
        assert f"{MIN_TOTAL}/{MIN_TOTAL}" in seen.getvalue()
        assert seen.getvalue().endswith(SHOW_CURSOR)


def test_short_work_has_no_bar() -> None:
    with screen() as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL - 1)
    assert seen.getvalue() == ""


def test_where_nobody_looks_work_that_says_its_end_itself_has_no_line() -> None:
    with patch.object(sys, "stderr", io.StringIO()) as seen, ProgressBar("Checking", writes_end=False) as bar:
        bar.show(MIN_TOTAL, MIN_TOTAL)
    assert seen.getvalue() == ""


def test_where_nobody_looks_one_line_says_how_far_it_came() -> None:
    with patch.object(sys, "stderr", io.StringIO()) as seen, ProgressBar("Filling the fleet") as bar:
        bar.show(1, MIN_TOTAL)
        bar.show(MIN_TOTAL, MIN_TOTAL)
    assert f"{MIN_TOTAL}/{MIN_TOTAL}" in seen.getvalue()
    assert seen.getvalue().count("Filling the fleet") == 1
