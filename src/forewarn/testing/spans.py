"""Spans of time as a test says them."""

from datetime import timedelta

from forewarn.core.duration import duration_text

Span = str | timedelta | float
"""`"15m"` or `"1h30m"`, a timedelta, or a number of seconds."""


def text(span: Span) -> str:
    """Write a span as the operator API takes it."""
    match span:
        case str():
            return span
        case timedelta():
            return duration_text(span)
        case _:
            return duration_text(timedelta(seconds=span))


def text_or_none(span: Span | None) -> str | None:
    """Write a span that may be left out."""
    return None if span is None else text(span)
