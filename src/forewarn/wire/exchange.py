"""An exchange between a VM and the guest endpoint: a request and its response, for people who look at them."""

from datetime import datetime
from typing import NamedTuple

import msgspec


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a VM and its response, or several equal ones in a row: then the bytes are those of the last one.

    Bodies and bytes can be truncated.
    """

    id: int
    """The number of the first request; numbers grow in order of arrival."""
    number: int
    """The number of the last one."""
    first_at: datetime
    """The arrival of the first request, by the service's clock."""
    at: datetime
    """The arrival of the last one."""
    count: int = 1
    method: str
    target: str
    status: int | None
    """None: there is no response, or none yet."""
    seconds: float | None = None
    """How long the last response took."""
    approved: tuple[str, ...] = ()
    """The event ids in a POST; they are approved only if the status is 200."""
    body: bytes = b""
    answer: bytes = b""
    """The body of the response."""
    raw_request: bytes = b""
    """The request as it arrived, if its bytes are kept."""
    raw_answer: bytes = b""
    """The response as it was sent, if its bytes are kept."""

    def is_equal(self, other: "Exchange") -> bool:
        """Return whether another exchange says the same: its times, its date and its request id do not count."""
        return (self.method, self.target, self.body, self.status, self.answer) == (
            other.method,
            other.target,
            other.body,
            other.status,
            other.answer,
        )

    @property
    def size(self) -> int:
        """How much memory its bytes need."""
        return len(self.body) + len(self.answer) + len(self.raw_request) + len(self.raw_answer) + len(self.target)


class ExchangeList(NamedTuple):
    """The newest exchanges of a VM, in order of arrival. The version grows with every change."""

    version: int
    exchanges: tuple[Exchange, ...]
