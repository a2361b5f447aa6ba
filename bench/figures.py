"""Arithmetic of the table: ratios, medians, formatted numbers."""

from collections.abc import Iterable, Sequence
from math import ceil
from statistics import median


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is at least as large as `percent` percent of all values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def ratio_of_rounds(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Return the median of the ratios per round: noise in a round mostly affects both of its measurements."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def rounded(values: Iterable[float], digits: int = 0) -> list[float]:
    """Round values to the digits worth reading."""
    return [round(value, digits) if digits else round(value) for value in values]


def format_number(number: float) -> str:
    """Format a number for reading."""
    return f"{number:,.0f}"
