"""Arithmetic of the table: ratios, medians, formatted numbers."""

from collections.abc import Iterable, Sequence
from math import ceil
from statistics import median


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not less than `percent` of all."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def ratio_of_rounds(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Return the median of the rounds' own ratios: what disturbs a round mostly disturbs both of its measurements."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def rounded(values: Iterable[float], digits: int = 0) -> list[float]:
    """Keep what is worth reading."""
    return [round(value, digits) if digits else round(value) for value in values]


def format_number(number: float) -> str:
    """Write a number for people."""
    return f"{number:,.0f}"
