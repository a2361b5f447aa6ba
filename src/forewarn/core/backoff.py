"""Exponential backoff: pauses that double from the first to the maximum."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import TypeVar

P = TypeVar("P", float, timedelta)

MAX_DOUBLINGS = 28
"""Enough for any maximum, and small enough that no pause overflows."""


def backoff(first: P, maximum: P) -> Iterator[P]:
    """Give the pause after each failure in a row, without end. After a success, start with a new iterator."""
    return (pause_after(failures, first, maximum) for failures in count(1))


def pause_after(failures: int, first: P, maximum: P) -> P:
    """Return the pause after so many failures in a row, where only their number is stored."""
    return min(first * 2.0 ** min(max(failures - 1, 0), MAX_DOUBLINGS), maximum)
