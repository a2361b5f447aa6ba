"""Campaign planner: plans in a thread or, for large fleets, in a separate process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from forewarn.core.campaign.plan import Plan, PlannedWave, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.snapshot import ScopeSnapshot
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.policy import RuleContext
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet
from forewarn.operator.errors import PlanFailed
from forewarn.operator.process_worker import ProgressCallback, Work, run_in_process

T = TypeVar("T")

SMALL_FLEET_VMS = 2_000
"""Up to this many VMs planning is fast enough for a thread; larger fleets need a separate process."""

MAX_CONCURRENT_PLANS = 2
"""How many plans are made, or large inputs read, at the same time; further requests wait."""

_encode = msgspec.json.Encoder().encode
_decode_scope = msgspec.json.Decoder(ScopeSnapshot).decode
_decode_wave = msgspec.json.Decoder(PlannedWave).decode


class EncodedPlan(NamedTuple):
    """A plan for transfer between processes: each wave is encoded separately, so that decoding can be gradual."""

    waves: list[bytes]
    summary: Plan
    """The plan without its waves."""

    async def decode(self) -> Plan:
        """Return the plan with its waves."""
        waves = [_decode_wave(wave) async for wave in iterate_gradually(self.waves)]
        return msgspec.structs.replace(self.summary, waves=tuple(waves))

    def with_remarks(self, remarks: Iterable[str]) -> "EncodedPlan":
        """Return the plan with more remarks."""
        return self._replace(summary=msgspec.structs.replace(self.summary, remarks=(*self.summary.remarks, *remarks)))


class CampaignPlanner:
    """Plans campaigns for the current fleet."""

    def __init__(self, fleet: Fleet, ids: Callable[[], Sequence[str]]) -> None:
        self._fleet = fleet
        self._ids = ids
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT_PLANS)

    async def plan(self, spec: CampaignSpec, on_progress: ProgressCallback | None = None) -> EncodedPlan:
        """Plan a campaign, without announcing or saving anything."""
        async with self._semaphore:
            now = self._fleet.clock.now()
            scopes = [scope async for scope in self._encoded_scopes()]
            work = partial(build_plan, scopes, spec, self._fleet.scopes.rule_context, now)
            if self._fleet.replica.vms <= SMALL_FLEET_VMS:
                return await asyncio.to_thread(work, _ignore_progress)
            try:
                return await run_in_process(work, on_progress)
            except EOFError as error:
                raise PlanFailed from error

    async def run_in_process(self, work: Work[T], *, seconds: float) -> T:
        """Run other work in a separate process, as one of those that run at the same time.

        Raises TimeoutError, or EOFError if the process dies.
        """
        async with self._semaphore, asyncio.timeout(seconds):
            return await run_in_process(work)

    async def _encoded_scopes(self) -> AsyncIterator[bytes]:
        async for id_ in iterate_gradually(self._ids()):
            scope, _ = self._fleet.replica.newest(id_)
            if scope is not None:
                yield _encode(scope)


def build_plan(
    scopes: list[bytes], spec: CampaignSpec, conditions: RuleContext, now: datetime, on_progress: ProgressCallback
) -> EncodedPlan:
    """Make a plan; called in a thread or in a separate process."""
    fleet = plan_scopes(map(_decode_scope, scopes), spec, conditions, now=now)
    whole = plan(spec, fleet, conditions, now=now, zones=find_zone, progress=on_progress)
    return EncodedPlan([_encode(wave) for wave in whole.waves], msgspec.structs.replace(whole, waves=()))


def _ignore_progress(done: int, total: int) -> None:
    """Ignore the progress of short work."""
    del done, total
