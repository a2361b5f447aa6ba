"""Spans of time as a test says them."""

from datetime import timedelta

from forewarn.core.duration import format_duration

Span = str | timedelta | float
"""`"15m"` or `"1h30m"`, a timedelta, or a number of seconds."""


def text(span: Span) -> str:
    """Write a span as the operator API takes it."""
    match span:
        case str():
            return span
        case timedelta():
            return format_duration(span)
        case _:
            return format_duration(timedelta(seconds=span))


def text_or_none(span: Span | None) -> str | None:
    """Write a span that may be left out."""
    return None if span is None else text(span)
