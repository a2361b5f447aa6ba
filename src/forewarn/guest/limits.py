"""Limits of the guest endpoint: request rate, connections, sizes and timeouts. A guest can exhaust no resource."""

import resource
import sys
from datetime import timedelta

import msgspec

from forewarn.core.errors import Invalid

SPARE_FILES = 128
"""Open files reserved for everything except connections: the store, programs, the logs."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the endpoint. Timeouts are in real time; each may be up to a second longer, but never shorter."""

    header_bytes: int = 16 * 1024
    header_fields: int = 128
    body_bytes: int = 64 * 1024
    requests_per_second: int | None = 5
    """Per VM, over all its connections; None: unlimited."""

    refusals_per_second: int = 50
    """How many requests over the rate limit, or of an unknown caller, are refused with a response. After that, the
    endpoint stops reading from the caller until the next second, because reading takes time from others."""

    reserved_files: int = SPARE_FILES
    """Open files that neither listeners nor connections of guests use."""

    connections: int = 32_768
    connections_per_vm: int = 64
    long_polls_per_vm: int = 4
    pipelined_bytes: int = 64 * 1024
    """Size of the pipelined requests that wait behind an unanswered one; above this, the endpoint stops reading."""

    unread_bytes: int = 64 * 1024
    """Size of the responses that the peer has not read; above this, no further request is served."""

    header_timeout: timedelta = timedelta(seconds=10)
    """From the first byte of a request to the end of its headers."""

    body_timeout: timedelta = timedelta(seconds=10)
    idle_timeout: timedelta = timedelta(minutes=2)
    unread_timeout: timedelta = timedelta(seconds=30)
    """For how long a peer may leave more than `unread_bytes` unread."""

    linger_timeout: timedelta = timedelta(seconds=2)
    """How long a refused peer may continue to send, so that it can read the refusal."""

    shutdown_timeout: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, timedelta) and value <= timedelta(0):
                raise Invalid(f"{name} must be positive, got {value}")
            if isinstance(value, int) and value < 1:
                raise Invalid(f"{name} must be at least 1, got {value}")


def file_limit() -> int:
    """Return how many files, including sockets, the process may have open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files


def connection_limit(limits: Limits, *, listening: int) -> int:
    """Return how many connections of guests the process can have besides its listening sockets."""
    return max(1, min(limits.connections, file_limit() - limits.reserved_files - listening))
