"""Filling an empty fleet from a fleet file, so that a crash on the way leaves nothing that could pass for complete."""

from collections.abc import Callable, Sequence
from functools import partial

from forewarn.core.scope import Scope
from forewarn.fleet.errors import FleetError
from forewarn.fleet.importing import Difference, compare, in_batches
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

    def refuse_what_is_there(found: Sequence[Difference]) -> None:
        for one in found:
            if one.what != "added" or fleet.replica.newest(one.scope)[0] is not None:
                raise FilledOtherwise(one.scope)

    comparison = await compare(fleet.replica, scopes, prune=True, tell=refuse_what_is_there)
    there = len(scopes) - len(comparison.wanted)
    async for done in in_batches(comparison.wanted, partial(fleet.inventory.add_scope, by=by), at_once=AT_ONCE):
        there += len(done)
        on_saved(there)
    await fleet.mark_filled()
