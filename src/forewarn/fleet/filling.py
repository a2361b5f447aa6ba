"""Filling an empty fleet from a fleet file, so that a crash on the way leaves nothing that could pass for complete."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from forewarn.core.scope import Scope
from forewarn.fleet.errors import FleetError
from forewarn.fleet.service import Fleet

AT_ONCE = 256
"""How many scopes are saved at the same time: enough for a store to save many of them in one step."""


class FilledOtherwise(FleetError):
    """Filling was interrupted, and what is there now is not from this file."""

    code = "filled-otherwise"

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(
            f"an earlier start was interrupted while it filled these data from another fleet file (see scope {scope}): "
            "start with that file again, or with an empty data directory"
        )


async def fill(fleet: Fleet, scopes: Sequence[Scope], *, by: str, on_saved: Callable[[int], None]) -> None:
    """Make the scopes that are not there yet, and remember that all are; tell after each few how many there are."""
    wanted = {scope.id: scope for scope in scopes}
    there = {view.id: view.scope for view in fleet.replica.views() if view.scope is not None}
    for id_, scope in there.items():
        if id_ not in wanted or not _is_same(scope, wanted[id_]):
            raise FilledOtherwise(id_)
    missing = (scope for scope in scopes if scope.id not in there)
    saved = len(there)
    while batch := list(islice(missing, AT_ONCE)):
        await asyncio.gather(*(fleet.inventory.add_scope(scope, by=by) for scope in batch))
        saved += len(batch)
        on_saved(saved)
    await fleet.mark_filled()


def _is_same(scope: Scope, wanted: Scope) -> bool:
    """Compare what a file says; what the service has added since is its own."""
    said = ("kind", "roster", "traits", "scale_set", "placement_group", "approval", "auto_approve")
    return all(getattr(scope, field) == getattr(wanted, field) for field in said)
