"""Counters of the guest endpoint: plain integers, because the hot path increments them. `/metrics` reads them."""

from collections import defaultdict

from forewarn.wire.error_responses import REASON_PHRASES, ErrorReason


class Counters:
    """Totals since the start, but for `connections` and `long_polls`, which are what there is now."""

    __slots__ = (
        "accepted",
        "ambiguous_callers",
        "connections",
        "failures",
        "long_polls",
        "refusals",
        "responses",
        "timed_out",
    )

    def __init__(self) -> None:
        self.responses: dict[int, int] = defaultdict(int, dict.fromkeys(REASON_PHRASES, 0))
        """By status."""
        self.refusals: dict[ErrorReason, int] = dict.fromkeys(ErrorReason, 0)
        self.ambiguous_callers = 0
        """Refused because more than one VM claims the caller's address: the inventory needs a person."""
        self.failures = 0
        """Answered with 500: errors of our own."""
        self.accepted = 0
        self.connections = 0
        self.timed_out = 0
        """Connections that were ended because the peer was silent, or did not read its answers."""
        self.long_polls = 0
