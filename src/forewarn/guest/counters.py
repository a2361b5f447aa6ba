"""Counters of the guest endpoint: plain integers, because the hot path increments them. `/metrics` reads them."""

from collections import defaultdict

from forewarn.wire.error_responses import REASON_PHRASES, ErrorReason


class Counters:
    """Totals since the start, except `connections` and `long_polls`, which are current numbers."""

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
        """Number of responses by status."""
        self.refusals: dict[ErrorReason, int] = dict.fromkeys(ErrorReason, 0)
        self.ambiguous_callers = 0
        """Refused because several VMs claim the caller's address: an operator must correct the inventory."""
        self.failures = 0
        """Requests answered with 500 because of an internal error."""
        self.accepted = 0
        self.connections = 0
        self.timed_out = 0
        """Connections closed because the peer was idle or did not read its responses."""
        self.long_polls = 0
