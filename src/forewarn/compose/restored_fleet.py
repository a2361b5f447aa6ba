"""Restored fleets: what must change before a fleet goes on from an older state, so that nothing happens twice."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

import msgspec

from forewarn.core.restore import RESTORE, restore
from forewarn.core.text import truncate_text
from forewarn.fleet.last_seen import new_epoch
from forewarn.fleet.service import Fleet

CONCURRENT_CHANGES = 500
"""How many scopes are changed at the same time, and so saved in few transactions."""


class UnfinishedWork(msgspec.Struct, frozen=True, kw_only=True):
    """An event on a VM that had not ended at the time of the backup, and may have happened since."""

    event: str
    scope: str
    vm: str


async def hold_restored(fleet: Fleet, why: str) -> None:
    """Hold a restored fleet until a person has looked at it."""
    before = fleet.holds.current
    reason = f"{why}: check the fleet, then run `forewarn release`"
    if before is not None:
        reason += f". The backup was already held by {before.by}: {before.reason}"
    await fleet.holds.set(by=RESTORE, reason=truncate_text(reason))


async def begin_epochs(
    fleet: Fleet,
    why: str,
    *,
    shown: Mapping[str, int] = MappingProxyType({}),
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[tuple[UnfinishedWork, ...], tuple[UnfinishedWork, ...]]:
    """Begin a new epoch in each scope; return work of unknown outcome, and canceled events.

    `shown` has the highest incarnation that guests have seen, as far as it is known. `on_progress` gets how many scopes
    are done, and how many there are.
    """
    unknown: list[UnfinishedWork] = []
    canceled: list[UnfinishedWork] = []

    async def restore_one(id_: str) -> None:
        rule = partial(restore, epoch=new_epoch(), shown=shown.get(id_, 0), why=why, now=fleet.clock.now())
        result = await fleet.scopes.apply(id_, rule)
        unknown.extend(UnfinishedWork(event=event.id, scope=id_, vm=impact.vm) for event, impact in result.unknown)
        canceled.extend(
            UnfinishedWork(event=event.id, scope=id_, vm=vm) for event in result.canceled for vm in event.vms
        )

    ids = sorted(view.id for view in fleet.replica.views())
    for start in range(0, len(ids), CONCURRENT_CHANGES):
        results = await asyncio.gather(
            *map(restore_one, ids[start : start + CONCURRENT_CHANGES]), return_exceptions=True
        )
        for error in filter(None, results):
            raise error
        on_progress(min(start + CONCURRENT_CHANGES, len(ids)), len(ids))
    return _sorted(unknown), _sorted(canceled)


def _sorted(work: Iterable[UnfinishedWork]) -> tuple[UnfinishedWork, ...]:
    return tuple(sorted(work, key=lambda each: (each.scope, each.event, each.vm)))
