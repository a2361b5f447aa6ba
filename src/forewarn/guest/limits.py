"""Limits of the guest endpoint: request rate, connections, sizes and timeouts. All that a guest can grow is bounded."""

import resource
from datetime import timedelta

import msgspec

from forewarn.core.errors import Invalid

SPARE_FILES = 128
"""Open files that are left for all that is not a guest's connection: the store, the operator side, the logs."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the endpoint. Times are real ones; each is kept to within a second, and never cut short."""

    header_bytes: int = 16 * 1024
    header_fields: int = 128
    body_bytes: int = 64 * 1024
    requests_per_second: int | None = 5
    """Per VM, over all its connections; None: as many as it likes."""

    refusals_per_second: int = 50
    """How many requests beyond those, or of a caller that is no VM, are told so; then the caller is not listened to
    until the next second, because to read what it sends takes time from others."""

    connections: int = 32_768
    connections_per_vm: int = 64
    long_polls_per_vm: int = 4
    pipelined_bytes: int = 64 * 1024
    """Requests behind one that has no answer yet; beyond this nothing more is read."""

    unread_bytes: int = 64 * 1024
    """Answers that the peer has not read yet; beyond this no further request is looked at."""

    header_timeout: timedelta = timedelta(seconds=10)
    """From the first byte of a request to the end of its head."""

    body_timeout: timedelta = timedelta(seconds=10)
    idle_timeout: timedelta = timedelta(minutes=2)
    unread_timeout: timedelta = timedelta(seconds=30)
    """For how long a peer may leave more than `unread_bytes` unread."""

    linger_timeout: timedelta = timedelta(seconds=2)
    """For how long a peer that was refused may go on sending, so that it gets to read why."""

    shutdown_timeout: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, timedelta) and value <= timedelta(0):
                raise Invalid(f"{name} is longer than nothing, not {value}")
            if isinstance(value, int) and value < 1:
                raise Invalid(f"{name} is at least 1, not {value}")


def connection_limit(configured: int, *, listening: int) -> int:
    """Return how many connections the process can have open beside its listening sockets, at the most `configured`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return configured
    return max(1, min(configured, files - SPARE_FILES - listening))
