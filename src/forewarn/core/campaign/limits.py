"""How many at once: what the limits of a policy come to in numbers, and which of them would be exceeded by how much."""

import msgspec

from forewarn.core.campaign.spec import CampaignPolicy

AT_ONCE = {"scopes": "scopes_at_once", "hosts": "hosts_at_once", "vms": "vms_at_once"}
"""What is counted, and the policy's key that limits it."""

SINGULAR = {"scopes": "scope", "hosts": "host", "vms": "VM"}
PLURAL = {"scopes": "scopes", "hosts": "hosts", "vms": "VMs"}


class Amounts(msgspec.Struct, frozen=True):
    """So many scopes, hosts and VMs: all that are selected, or those in impact at a moment."""

    scopes: int = 0
    hosts: int = 0
    vms: int = 0


class Exceeded(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that would not be kept."""

    what: str
    """scopes, hosts or vms."""
    limit: int
    wanted: int
    """How many there would be."""

    @property
    def rule(self) -> str:
        """The policy's key."""
        return AT_ONCE[self.what]

    @property
    def by_how_much(self) -> str:
        """Say how many are too many."""
        return f"{counted(self.wanted - self.limit, self.what)} too many"

    def __str__(self) -> str:
        return f"{self.rule} allows {self.limit}: with this wave there would be {self.wanted}, {self.by_how_much}"


class Ceilings(msgspec.Struct, frozen=True):
    """The limits of a policy as numbers; None is no limit."""

    scopes: int | None = None
    hosts: int | None = None
    vms: int | None = None

    def exceeded(self, amounts: Amounts) -> tuple[Exceeded, ...]:
        """Return every limit that these amounts, all that would be in impact at once, do not keep."""
        return tuple(
            Exceeded(what=what, limit=limit, wanted=wanted)
            for what in AT_ONCE
            if (limit := getattr(self, what)) is not None and (wanted := getattr(amounts, what)) > limit
        )


def ceilings(policy: CampaignPolicy, selected: Amounts) -> Ceilings:
    """Return the limits in numbers. Percentages are of what the campaign selects."""
    limits = {what: (getattr(policy, rule), getattr(selected, what)) for what, rule in AT_ONCE.items()}
    return Ceilings(**{what: limit.of(total) for what, (limit, total) in limits.items() if limit is not None})


def counted(number: int, what: str) -> str:
    """Say a number of scopes, hosts or VMs."""
    return f"{number} {SINGULAR[what] if number == 1 else PLURAL[what]}"
