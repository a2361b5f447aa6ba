"""Filling an empty fleet from a fleet file, so that a crash on the way leaves nothing that could pass for complete."""

from collections.abc import Callable, Sequence

from forewarn.core.scope import Scope
from forewarn.fleet.errors import FleetError
from forewarn.fleet.importing import compare, in_batches
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
    differences = await compare(fleet.replica, scopes, prune=True)
    for one in differences.differences:
        if one.what != "added" or fleet.replica.newest(one.scope)[0] is not None:
            raise FilledOtherwise(one.scope)
    there = len(scopes) - len(differences.wanted)
    await in_batches(
        differences.wanted,
        lambda scope: fleet.inventory.add_scope(scope, by=by),
        at_once=AT_ONCE,
        on_done=lambda number: on_saved(there + number),
    )
    await fleet.mark_filled()
