"""Counters of the operator API and its port. `/metrics` reads them."""

from collections import defaultdict
from enum import StrEnum

from forewarn.operator.error_responses import statuses_by_code

STATUSES = (200, 201, 204, *sorted(set(statuses_by_code().values())))
"""Statuses that are exported from the start with 0, because Prometheus cannot compute a rate of a new series."""


class RefuseReason(StrEnum):
    """Why a connection is refused; the values are labels of a metric."""

    TOTAL = "total"
    ADDRESS = "address"
    OPEN_FILES = "open-files"


class ProtocolError(StrEnum):
    """What a caller sent instead of a request; the values are labels of a metric."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    TLS = "tls"


class Counters:
    """Totals since the start, except `connections`, which is a current number."""

    def __init__(self) -> None:
        self.responses: dict[int, int] = defaultdict(int, dict.fromkeys(STATUSES, 0))
        """Number of responses of the API by status."""
        self.connections = 0
        self.accepted = 0
        self.refusals = dict.fromkeys(RefuseReason, 0)
        self.timed_out = 0
        """Connections closed because the caller sent nothing, or did not complete a handshake or a request."""
        self.protocol_errors = dict.fromkeys(ProtocolError, 0)
        self.wrong_tokens = 0
