"""Concurrency limits of a campaign as numbers, the usage they bound, and which would be exceeded by how much."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from forewarn.core.campaign.spec import CampaignPolicy

LIMIT_KEYS = {"scopes": "scopes_at_once", "hosts": "hosts_at_once", "vms": "vms_at_once"}
"""What is counted, and the policy's key that limits it."""

SINGULAR = {"scopes": "scope", "hosts": "host", "vms": "VM"}
PLURAL = {"scopes": "scopes", "hosts": "hosts", "vms": "VMs"}


class Counts(msgspec.Struct, frozen=True):
    """So many scopes, hosts and VMs: all that are selected, or those in impact at a moment."""

    scopes: int = 0
    hosts: int = 0
    vms: int = 0


class ExceededLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that would not be kept."""

    what: str
    """scopes, hosts or vms."""
    limit: int
    wanted: int
    """How many there would be."""

    @property
    def rule(self) -> str:
        """The policy's key."""
        return LIMIT_KEYS[self.what]

    @property
    def excess(self) -> str:
        """Say how many are too many."""
        return f"{format_count(self.wanted - self.limit, self.what)} too many"

    @property
    def wave_message(self) -> str:
        """Say it of a wave that is too large by itself."""
        return f"{self.rule} allows {self.limit}, and it has {format_count(self.wanted, self.what)}, {self.excess}"

    def __str__(self) -> str:
        return f"{self.rule} allows {self.limit}: with this wave there would be {self.wanted}, {self.excess}"


class CampaignLimits(msgspec.Struct, frozen=True):
    """The limits of a policy as numbers; None is no limit."""

    scopes: int | None = None
    hosts: int | None = None
    vms: int | None = None

    def allows(self, counts: Counts) -> bool:
        """Tell whether these amounts, all that would be in impact at once, are within the limits."""
        return (
            (self.scopes is None or counts.scopes <= self.scopes)
            and (self.hosts is None or counts.hosts <= self.hosts)
            and (self.vms is None or counts.vms <= self.vms)
        )

    def exceeded(self, counts: Counts) -> tuple[ExceededLimit, ...]:
        """Return every limit that these amounts would not keep."""
        return tuple(
            ExceededLimit(what=what, limit=limit, wanted=wanted)
            for what in LIMIT_KEYS
            if (limit := getattr(self, what)) is not None and (wanted := getattr(counts, what)) > limit
        )


def resolve_limits(policy: CampaignPolicy, selected: Counts) -> CampaignLimits:
    """Return the limits in numbers. Percentages are of what the campaign selects."""
    limits = {what: (getattr(policy, rule), getattr(selected, what)) for what, rule in LIMIT_KEYS.items()}
    return CampaignLimits(
        **{what: limit.resolve(total) for what, (limit, total) in limits.items() if limit is not None}
    )


class Load(msgspec.Struct, frozen=True, gc=False):
    """What one wave, or one event of whatever cause, has in impact."""

    scope: str
    hosts: tuple[str, ...]
    vms: int


class Usage:
    """All that is in impact at a moment. Scopes and hosts that several loads share count once."""

    def __init__(self) -> None:
        self._scopes: Counter[str] = Counter()
        self._on_hosts: Counter[str] = Counter()
        self.hosts: set[str] = set()
        self._vms = 0

    def plus(self, load: Load) -> Counts:
        """Return how much it would be with one load more."""
        return Counts(
            len(self._scopes) + (load.scope not in self._scopes),
            len(self.hosts) + len([host for host in load.hosts if host not in self.hosts]),
            self._vms + load.vms,
        )

    def add(self, load: Load) -> None:
        """Add a load."""
        scopes, on_hosts = self._scopes, self._on_hosts
        scopes[load.scope] = scopes.get(load.scope, 0) + 1
        for host in load.hosts:
            on_hosts[host] = on_hosts.get(host, 0) + 1
        self.hosts.update(load.hosts)
        self._vms += load.vms

    def remove(self, load: Load) -> None:
        """Take a load away that was added before."""
        _decrement(self._scopes, (load.scope,))
        self.hosts.difference_update(_decrement(self._on_hosts, load.hosts))
        self._vms -= load.vms


def _decrement(counter: Counter[str], names: Iterable[str]) -> list[str]:
    """Count each name once less, and return those of which none is left."""
    counter.subtract(names)
    gone = [name for name in names if not counter[name]]
    for name in gone:
        del counter[name]
    return gone


def unknown_host(scope: str, update_domain: int) -> str:
    """Return what stands for the host of VMs whose host is not known: one of their own. No host has such a name."""
    return f"{scope}/{update_domain}"


def is_unknown_host(host: str) -> bool:
    """Tell whether this stands for a host that is not known."""
    return "/" in host


def format_count(number: int, what: str) -> str:
    """Say a number of scopes, hosts or VMs."""
    return f"{number} {SINGULAR[what] if number == 1 else PLURAL[what]}"
