"""The little arithmetic that the table needs."""

from collections.abc import Sequence
from math import ceil


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not less than `percent` of all."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def thousands(number: float) -> str:
    """Write a number for people."""
    return f"{number:,.0f}"
