"""Exponential backoff: pauses that double from the first to the maximum."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import TypeVar

P = TypeVar("P", float, timedelta)

MAX_DOUBLINGS = 28
"""High enough for any maximum, and low enough that no pause overflows."""


def backoff(first: P, maximum: P) -> Iterator[P]:
    """Yield the pause after each consecutive failure, without end. After a success, start with a new iterator."""
    return (pause_after(failures, first, maximum) for failures in count(1))


def pause_after(failures: int, first: P, maximum: P) -> P:
    """Return the pause after this many consecutive failures, for callers that store only the number."""
    return min(first * 2.0 ** min(max(failures - 1, 0), MAX_DOUBLINGS), maximum)
