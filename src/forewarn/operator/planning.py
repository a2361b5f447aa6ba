"""Plans of campaigns, made where that keeps nobody waiting: for a hundred thousand VMs it takes seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.plan import Plan, PlannedWave, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.snapshot import ScopeSnapshot
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.policy import RuleContext
from forewarn.fleet.campaign.zones import find_zone
from forewarn.fleet.event_loop import yielding
from forewarn.fleet.service import Fleet
from forewarn.operator.elsewhere import Report, done_elsewhere
from forewarn.operator.errors import PlanFailed

SMALL = 2_000
"""A plan for a fleet of so many VMs is made so quickly that it needs no process of its own."""

AT_ONCE = 2
"""How many plans are made at the same time; others wait their turn."""

_encode = msgspec.json.Encoder().encode
_decode_scope = msgspec.json.Decoder(ScopeSnapshot).decode
_decode_wave = msgspec.json.Decoder(PlannedWave).decode


class Planned(NamedTuple):
    """A plan as it travels from process to process: each wave by itself, so that nobody has to read all at once."""

    waves: list[bytes]
    rest: Plan
    """The plan without its waves."""

    async def whole(self) -> Plan:
        """Return the plan with its waves."""
        waves = [_decode_wave(wave) async for wave in yielding(self.waves)]
        return msgspec.structs.replace(self.rest, waves=tuple(waves))

    def remarked(self, remarks: Iterable[str]) -> "Planned":
        """Return the plan with more remarks."""
        return self._replace(rest=msgspec.structs.replace(self.rest, remarks=(*self.rest.remarks, *remarks)))


class Planner:
    """Makes plans from the fleet as it is."""

    def __init__(self, fleet: Fleet, ids: Callable[[], Sequence[str]]) -> None:
        self._fleet = fleet
        self._ids = ids
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def plan(self, spec: CampaignSpec, report: Report | None = None) -> Planned:
        """Plan a campaign; nothing is announced, and nothing is saved."""
        async with self._turns:
            now = self._fleet.clock.now()
            scopes = [scope async for scope in self._encoded()]
            work = partial(made_plan, scopes, spec, self._fleet.rule_context, now)
            if self._fleet.replica.vms <= SMALL:
                return await asyncio.to_thread(work, _nobody)
            try:
                return await done_elsewhere(work, report)
            except EOFError as error:
                raise PlanFailed from error

    async def _encoded(self) -> AsyncIterator[bytes]:
        async for id_ in yielding(self._ids()):
            scope, _ = self._fleet.replica.newest(id_)
            if scope is not None:
                yield _encode(scope)


def made_plan(
    scopes: list[bytes], spec: CampaignSpec, conditions: RuleContext, now: datetime, report: Report
) -> Planned:
    """Make a plan, in any process."""
    fleet = plan_scopes(map(_decode_scope, scopes), spec, conditions, now=now)
    whole = plan(spec, fleet, conditions, now=now, zones=find_zone, progress=report)
    return Planned([_encode(wave) for wave in whole.waves], msgspec.structs.replace(whole, waves=()))


def _nobody(done: int, total: int) -> None:
    """Report to nobody what is done in a moment."""
    del done, total
