"""Concurrency limits of a campaign as numbers, the usage that they limit, and which limit would be exceeded."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from forewarn.core.campaign.spec import CampaignPolicy

LIMIT_KEYS = {"scopes": "scopes_at_once", "hosts": "hosts_at_once", "vms": "vms_at_once"}
"""What is counted, with the policy key that limits it."""

SINGULAR = {"scopes": "scope", "hosts": "host", "vms": "VM"}
PLURAL = {"scopes": "scopes", "hosts": "hosts", "vms": "VMs"}


class Counts(msgspec.Struct, frozen=True):
    """A number of scopes, hosts and VMs: all that are selected, or those in impact at one time."""

    scopes: int = 0
    hosts: int = 0
    vms: int = 0


class ExceededLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that would be exceeded."""

    what: str
    """scopes, hosts or vms."""
    limit: int
    wanted: int
    """The number that there would be."""

    @property
    def rule(self) -> str:
        """The policy key."""
        return LIMIT_KEYS[self.what]

    @property
    def excess(self) -> str:
        """The excess as a text."""
        return f"{format_count(self.wanted - self.limit, self.what)} too many"

    @property
    def wave_message(self) -> str:
        """The message for a wave that exceeds the limit alone."""
        return f"{self.rule} allows {self.limit}, and it has {format_count(self.wanted, self.what)}, {self.excess}"

    def __str__(self) -> str:
        return f"{self.rule} allows {self.limit}: with this wave there would be {self.wanted}, {self.excess}"


class CampaignLimits(msgspec.Struct, frozen=True):
    """The limits of a policy as numbers; None is no limit."""

    scopes: int | None = None
    hosts: int | None = None
    vms: int | None = None

    def allows(self, counts: Counts) -> bool:
        """Return whether this usage is within the limits."""
        return (
            (self.scopes is None or counts.scopes <= self.scopes)
            and (self.hosts is None or counts.hosts <= self.hosts)
            and (self.vms is None or counts.vms <= self.vms)
        )

    def exceeded(self, counts: Counts) -> tuple[ExceededLimit, ...]:
        """Return every limit that this usage would exceed."""
        return tuple(
            ExceededLimit(what=what, limit=limit, wanted=wanted)
            for what in LIMIT_KEYS
            if (limit := getattr(self, what)) is not None and (wanted := getattr(counts, what)) > limit
        )


NO_LIMITS = CampaignLimits()


def resolve_limits(policy: CampaignPolicy, selected: Counts) -> CampaignLimits:
    """Return the limits as numbers. Percentages are of the campaign's selection."""
    limits = {what: (getattr(policy, rule), getattr(selected, what)) for what, rule in LIMIT_KEYS.items()}
    return CampaignLimits(
        **{what: limit.resolve(total) for what, (limit, total) in limits.items() if limit is not None}
    )


class Load(msgspec.Struct, frozen=True, gc=False):
    """What one wave, or one event of any cause, has in impact."""

    scope: str
    hosts: tuple[str, ...]
    vms: int


class Usage:
    """Everything in impact at one time. Scopes and hosts that several loads share count once."""

    def __init__(self) -> None:
        self.scopes: Counter[str] = Counter()
        self._on_hosts: Counter[str] = Counter()
        self.hosts: set[str] = set()
        self.vms = 0

    def plus(self, load: Load) -> Counts:
        """Return the usage with one more load."""
        return Counts(
            len(self.scopes) + (load.scope not in self.scopes),
            len(self.hosts) + len([host for host in load.hosts if host not in self.hosts]),
            self.vms + load.vms,
        )

    def add(self, load: Load) -> None:
        """Add a load."""
        scopes, on_hosts = self.scopes, self._on_hosts
        scopes[load.scope] = scopes.get(load.scope, 0) + 1
        for host in load.hosts:
            on_hosts[host] = on_hosts.get(host, 0) + 1
        self.hosts.update(load.hosts)
        self.vms += load.vms

    def remove(self, load: Load) -> None:
        """Remove a load that was added before."""
        _decrement(self.scopes, (load.scope,))
        self.hosts.difference_update(_decrement(self._on_hosts, load.hosts))
        self.vms -= load.vms


class UsageDraft:
    """A usage with the loads that one decision adds. The usage itself does not change."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._scopes: set[str] = set()
        self._hosts: set[str] = set()
        """Those that are added, and not in use yet."""
        self._vms = 0

    def add(self, load: Load) -> None:
        """Add a load."""
        if load.scope not in self._usage.scopes:
            self._scopes.add(load.scope)
        self._hosts.update(host for host in load.hosts if host not in self._usage.hosts)
        self._vms += load.vms

    def plus(self, load: Load) -> Counts:
        """Return the usage with one more load."""
        before = self._usage.plus(load)
        shared = sum(host in self._hosts for host in load.hosts)
        return Counts(
            before.scopes + len(self._scopes) - (load.scope in self._scopes),
            before.hosts + len(self._hosts) - shared,
            before.vms + self._vms,
        )


def _decrement(counter: Counter[str], names: Iterable[str]) -> list[str]:
    """Decrement the count of each name, and return the names whose count is now 0."""
    counter.subtract(names)
    gone = [name for name in names if not counter[name]]
    for name in gone:
        del counter[name]
    return gone


def unknown_host(scope: str, update_domain: int) -> str:
    """Return a placeholder for the unknown host of VMs, one per group. No real host can have such a name."""
    return f"{scope}/{update_domain}"


def is_unknown_host(host: str) -> bool:
    """Return whether the name is the placeholder of an unknown host."""
    return "/" in host


def format_count(number: int, what: str) -> str:
    """Format a number of scopes, hosts or VMs."""
    return f"{number} {SINGULAR[what] if number == 1 else PLURAL[what]}"
