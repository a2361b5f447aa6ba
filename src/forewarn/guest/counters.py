"""What the endpoint counts: plain integers, because they are counted on the hot path. Whoever collects them reads."""

from collections import defaultdict

from forewarn.wire.error_responses import REASON_PHRASES, ErrorReason


class Counters:
    """Totals since the start, but for `connections` and `held`, which are what there is now."""

    __slots__ = ("accepted", "answers", "connections", "contested", "cut_off", "failures", "held", "refusals")

    def __init__(self) -> None:
        self.answers: dict[int, int] = defaultdict(int, dict.fromkeys(REASON_PHRASES, 0))
        """By status."""
        self.refusals: dict[ErrorReason, int] = dict.fromkeys(ErrorReason, 0)
        self.contested = 0
        """Refused because more than one VM claims the caller's address: the inventory needs a person."""
        self.failures = 0
        """Answered with 500: errors of our own."""
        self.accepted = 0
        self.connections = 0
        self.cut_off = 0
        """Connections that were ended because the peer was silent, or did not read its answers."""
        self.held = 0
