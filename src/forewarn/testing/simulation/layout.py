"""Layout of a simulated cell: scopes, VMs, their hosts and their behaviour, computed from numbers instead of stored.

So a fleet of any size takes no memory until something happens in it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from math import gcd
from typing import NamedTuple

from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import NO_TRAITS, Priority, Roster, Traits, Vm

SCOPE_SIZES = (1, 1, 1, 1, 1, 5, 5, 5, 20, 20, 50)
"""The numbers of VMs of consecutive scopes; the pattern repeats. On average a scope has 10 VMs."""

_STARTS = (0, *accumulate(SCOPE_SIZES))
VMS_PER_PATTERN = _STARTS[-1]

UPDATE_DOMAINS = 5
VMS_PER_HOST = 50
POLL_INTERVALS = ((60, 1), (25, 5), (5, 30))
"""How many of 100 scopes poll at which interval, in seconds. The others never poll."""

APPROVING = 70
"""How many of 100 polling scopes approve their events, soon after they have seen them."""

APPROVAL_SECONDS = (5, 120)
LOW_PRIORITY = 5
"""How many of 100 scopes have VMs that can be evicted."""

_MASK = (1 << 64) - 1
GOLDEN_RATIO = 0.618


class ScopeProfile(NamedTuple):
    """How the VMs of a scope behave."""

    poll_interval: int | None
    """Seconds between two polls of a VM; None: they never poll."""
    approval_delay: float | None
    """Seconds from an announcement to its approval; None: they never approve."""
    is_low_priority: bool


class FleetLayout:
    """The layout of one cell. VMs and scopes are numbered from 0; consecutive VMs are on different hosts."""

    def __init__(self, *, vms: int, cell: int, seed: int) -> None:
        self.vms = vms
        self.hosts = max(-(-vms // VMS_PER_HOST), min(vms, UPDATE_DOMAINS))
        self._salt = _mix(seed * 1_000_003 + cell)
        self._cell = cell
        self._step = next(
            step
            for step in range(int(self.hosts * GOLDEN_RATIO) or 1, 2 * self.hosts + 2)
            if gcd(step, self.hosts) == 1
        )
        self._inverse = pow(self._step, -1, self.hosts) if self.hosts > 1 else 0
        self.scopes = self.scope_of(vms - 1) + 1

    def scope_of(self, vm: int) -> int:
        """Return the scope of a VM."""
        pattern, rest = divmod(vm, VMS_PER_PATTERN)
        return pattern * len(SCOPE_SIZES) + bisect_right(_STARTS, rest) - 1

    def vms_of(self, scope: int) -> range:
        """Return the VMs of a scope."""
        pattern, number = divmod(scope, len(SCOPE_SIZES))
        first = pattern * VMS_PER_PATTERN + _STARTS[number]
        return range(first, min(first + SCOPE_SIZES[number], self.vms))

    def host_of(self, vm: int) -> int:
        """Return the host on which a VM begins."""
        return vm * self._step % self.hosts

    def vms_on(self, host: int) -> Iterator[int]:
        """Yield the VMs that begin on a host."""
        first = host * self._inverse % self.hosts if self.hosts > 1 else 0
        return iter(range(first, self.vms, self.hosts))

    def profile(self, scope: int) -> ScopeProfile:
        """Return how the VMs of a scope behave."""
        number = _mix(self._salt + scope)
        share, interval = number % 100, None
        for percent, seconds in POLL_INTERVALS:
            if share < percent:
                interval = seconds
                break
            share -= percent
        low, high = APPROVAL_SECONDS
        approves = interval is not None and (number >> 16) % 100 < APPROVING
        delay = low + (number >> 24) % 1_000 / 1_000 * (high - low) + (interval or 0)
        return ScopeProfile(interval, delay if approves else None, (number >> 40) % 100 < LOW_PRIORITY)

    def create_scope(self, scope: int, now: datetime) -> Scope:
        """Return a scope as it is at the beginning."""
        vms = self.vms_of(scope)
        profile = self.profile(scope)
        name = scope_name(scope)
        polls = profile.poll_interval is not None
        return Scope(
            id=name,
            kind=ScopeKind.STANDALONE if len(vms) == 1 else ScopeKind.AVAILABILITY_SET,
            epoch=f"e{scope}",
            changed_at=now,
            roster=Roster(tuple(self._create_vm(name, number, vm) for number, vm in enumerate(vms))),
            traits=Traits(priority=Priority.LOW) if profile.is_low_priority else NO_TRAITS,
            enabled=polls,
            was_enabled=polls,
            seen_at=now if polls else None,
        )

    def vm_number(self, scope: int, name: str) -> int:
        """Return the number of a VM by its name."""
        return self.vms_of(scope)[int(name.rpartition("-")[2])]

    def _create_vm(self, scope: str, number: int, vm: int) -> Vm:
        return Vm(
            name=f"{scope}-{number}",
            vm_id=f"{self._cell:08x}-0000-4000-8000-{vm:012x}",
            update_domain=number % UPDATE_DOMAINS,
            host=host_name(self.host_of(vm)),
        )


def scope_name(scope: int) -> str:
    """Return the name of a scope."""
    return f"s{scope:06d}"


def scope_number(name: str) -> int:
    """Return the number of a scope by its name."""
    return int(name[1:])


def host_name(host: int) -> str:
    """Return the name of a host."""
    return f"hv-{host}"


def host_number(name: str) -> int:
    """Return the number of a host by its name."""
    return int(name.removeprefix("hv-"))


def moment_at(start: datetime, seconds: float) -> datetime:
    """Return a time of the simulation."""
    return start + timedelta(seconds=seconds)


def _mix(number: int) -> int:
    """Return a number that looks random, by the algorithm of Steele, Lea and Flood (2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
