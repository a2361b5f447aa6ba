"""Limits of the operator port: connections and wrong tokens, in total and per address, and the log of refusals."""

import asyncio
import logging
from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec

from forewarn.operator.counters import Counters, RefuseReason

log = logging.getLogger(__name__)

LOG_DELAY = 1.0
"""How long, in seconds, refusals are counted before the first line, so that it has the size of a burst."""

LOG_INTERVAL = 60.0
"""The time, in seconds, between two such lines."""

CALLER_LINES = 256
"""How many addresses can get their own line in a minute; all others share one."""

WRONG_TOKENS = 30
"""How many wrong tokens of one address are answered with 401 in a minute."""

COUNTED_ADDRESSES = 4_096
"""For how many addresses wrong tokens are counted at a time."""

OTHER_ADDRESSES = "other addresses"

NETWORK_BITS = 64
"""An IPv6 host usually has a network of its own, of this prefix length, and could use all addresses in it."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections may be open at a time. A connection counts from its acceptance, before any TLS handshake."""

    total: int = 1_024
    per_address: int = 512


def caller_address(host: str) -> str:
    """Return the address by which a caller is counted: for IPv6 its network."""
    match ip_address(host.partition("%")[0]):
        case IPv6Address(ipv4_mapped=IPv4Address() as mapped):
            return str(mapped)
        case IPv6Address(packed=packed):
            return f"{IPv6Address(packed[: NETWORK_BITS // 8].ljust(16, bytes(1)))}/{NETWORK_BITS}"
        case address:
            return str(address)


class ConnectionSlots:
    """Counts the open connections, and refuses those over a limit."""

    def __init__(self, limits: ConnectionLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._open: Counter[str] = Counter()
        self._logged = self._totals()
        self._log_timer: asyncio.TimerHandle | None = None

    def acquire(self, address: str) -> bool:
        """Count a new connection; return False, and count a refusal, if there are too many."""
        if self._counters.connections >= self._limits.total:
            self.refuse(RefuseReason.TOTAL)
        elif self._open[address] >= self._limits.per_address:
            self.refuse(RefuseReason.ADDRESS)
        else:
            self._open[address] += 1
            self._counters.connections += 1
            self._counters.accepted += 1
            return True
        return False

    def release(self, address: str) -> None:
        """Stop counting a connection."""
        self._counters.connections -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def refuse(self, reason: RefuseReason) -> None:
        """Count a refused connection, and log it with all others of this minute."""
        self._counters.refusals[reason] += 1
        if self._log_timer is None:
            self._log_timer = asyncio.get_running_loop().call_later(LOG_DELAY, self._log)

    def close(self) -> None:
        """Log what is not logged yet."""
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._write_line()

    def _log(self) -> None:
        has_refused = self._write_line()
        self._log_timer = asyncio.get_running_loop().call_later(LOG_INTERVAL, self._log) if has_refused else None

    def _write_line(self) -> bool:
        """Log the refusals since the last line; return whether there were any."""
        totals = self._totals()
        refusals, timed_out = totals[0] - self._logged[0], totals[1] - self._logged[1]
        self._logged = totals
        if not refusals:
            return False
        address, count = max(self._open.items(), key=lambda item: item[1], default=("", 0))
        log.warning(
            "refused %d connections to the operator API: %d over operator_connections_per_address (%d here), "
            "%d over operator_connections (%d here), %d for lack of open files; closed %d that were silent; "
            "%d are open%s",
            refusals.total(),
            *(refusals[RefuseReason.ADDRESS], self._limits.per_address),
            *(refusals[RefuseReason.TOTAL], self._limits.total),
            refusals[RefuseReason.OPEN_FILES],
            timed_out,
            self._counters.connections,
            f", {count} of them from {address}" if count else "",
        )
        return True

    def _totals(self) -> tuple[Counter[RefuseReason], int]:
        return Counter(self._counters.refusals), self._counters.timed_out


class CallerLog:
    """Logs what callers do wrong: at most one line per address and minute, and for many addresses one for the rest."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[float, int]] = {}
        """When each address got its last line, oldest first, and how many were left out since."""

    def warn(self, address: str, problem: str, *, now: float) -> None:
        """Log a problem of a caller, or count it if the address has had a line in this minute."""
        key = self._key(address, now)
        logged_at, omitted = self._lines.get(key, (None, 0))
        if logged_at is not None and now - logged_at < LOG_INTERVAL:
            self._lines[key] = (logged_at, omitted + 1)
            return
        self._lines.pop(key, None)
        self._lines[key] = (now, 0)
        log.warning("%s: %s%s", key, problem, f" (and {omitted} more since the last line)" if omitted else "")

    def _key(self, address: str, now: float) -> str:
        """Return the address, or the shared one if too many addresses have had a line in this minute."""
        if address in self._lines:
            return address
        while len(self._lines) >= CALLER_LINES:
            oldest = next(iter(self._lines))
            if now - self._lines[oldest][0] < LOG_INTERVAL:
                return OTHER_ADDRESSES
            del self._lines[oldest]
        return address


class WrongTokenLimit:
    """Counts the wrong tokens of each address, minute by minute. When the table is full, the oldest minute is lost."""

    def __init__(self) -> None:
        self._minutes: dict[str, tuple[float, int]] = {}
        """When the minute of each address began, oldest first, and how many wrong tokens it has had since."""

    def count(self, address: str, *, now: float) -> float:
        """Count a wrong token; return for how many seconds there were too many, or 0."""
        began_at, count = self._minutes.get(address, (now, 0))
        if now - began_at >= LOG_INTERVAL:
            del self._minutes[address]
            began_at, count = now, 0
        if address not in self._minutes and len(self._minutes) >= COUNTED_ADDRESSES:
            del self._minutes[next(iter(self._minutes))]
        self._minutes[address] = (began_at, count + 1)
        return began_at + LOG_INTERVAL - now if count >= WRONG_TOKENS else 0
