"""The plan of a campaign: every wave with its times, hosts and VMs, before anything is announced."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from forewarn.core.campaign.limits import Amounts
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.campaign.windows import Zones
from forewarn.core.conditions import Conditions
from forewarn.core.scope import Scope

Progress = Callable[[int, int], None]
"""Is told now and then how many of the selected VMs are done with, and of how many."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """The selected VMs of one update domain of a scope: what a wave hits."""

    update_domain: int
    vms: tuple[str, ...]
    hosts: tuple[str, ...]
    """Where they are; VMs whose host is not known count as on one host of their own."""


class Busy(msgspec.Struct, frozen=True, gc=False):
    """What an open event, of whatever cause, is expected to keep in impact."""

    start: datetime
    end: datetime
    vms: int
    hosts: tuple[str, ...]


class PlanScope(msgspec.Struct, frozen=True):
    """What a plan has to know of a scope: its selected VMs, what is under way in it already, and whether it is held."""

    id: str
    groups: tuple[Group, ...] = ()
    busy: tuple[Busy, ...] = ()
    held: str = ""


class PlannedWave(msgspec.Struct, frozen=True, kw_only=True):
    """One wave: an update domain of a scope."""

    scope: str
    n: int
    """It is the scope's n-th, from 1."""
    update_domain: int
    announce_at: datetime
    not_before: datetime
    ends_at: datetime
    """When it is expected to end."""
    hosts: tuple[str, ...]
    vms: tuple[str, ...]


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """VMs that the policy leaves no place for."""

    scope: str
    update_domain: int
    vms: tuple[str, ...]
    rule: str
    """The policy's key."""
    by_how_much: str
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Each selected VM is in exactly one wave, or unplaced."""

    waves: tuple[PlannedWave, ...]
    """In the order of their starts."""
    unplaced: tuple[Unplaced, ...]
    ends_at: datetime | None
    """When the last wave is expected to end; None: there is no wave."""
    totals: Amounts
    """All that are selected: what percentages are of."""
    remarks: tuple[str, ...] = ()
    """What a person should know besides: names that select nothing, scopes that are held."""


def notice_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return the time from a wave's announcement to its start, after speed; refuse less than the type's minimum."""
    raise NotImplementedError


def gap_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return the least time from the end of a scope's wave to the start of its next, after speed."""
    raise NotImplementedError


def length_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return how long a wave is expected to take, after speed."""
    raise NotImplementedError


def plan_scope(scope: Scope, spec: CampaignSpec, conditions: Conditions, *, now: datetime) -> PlanScope | None:
    """Return what a plan has to know of a scope; None where that is nothing."""
    raise NotImplementedError


def plan(
    spec: CampaignSpec,
    fleet: Iterable[PlanScope],
    conditions: Conditions,
    *,
    now: datetime,
    zones: Zones,
    progress: Progress | None = None,
) -> Plan:
    """Place every selected VM."""
    raise NotImplementedError
