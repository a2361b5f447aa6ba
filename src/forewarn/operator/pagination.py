"""Pagination over up to 100,000 scopes, in short turns of the event loop."""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.replica import Replica
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller

T = TypeVar("T")


class SortedScopeIds:
    """The sorted ids of all scopes. Added and removed scopes are merged at the next request."""

    def __init__(self, fleet: Fleet) -> None:
        self._ids = sorted(view.id for view in fleet.replica.views())
        self._known = set(self._ids)
        self._changed: dict[str, bool] = {}
        fleet.scopes.roster_observers.append(self.observe)

    def observe(self, change: ScopeChange) -> None:
        """Record an added or removed scope."""
        exists = change.after is not None
        if exists != (change.id in self._known):
            self._changed[change.id] = exists
        else:
            self._changed.pop(change.id, None)

    def ids(self) -> list[str]:
        """Return the ids; later changes do not affect the list."""
        if self._changed:
            added = sorted(id_ for id_, exists in self._changed.items() if exists)
            removed = self._changed.keys() - added
            self._changed = {}
            self._known.update(added)
            self._known -= removed
            kept = [id_ for id_ in self._ids if id_ not in removed] if removed else self._ids
            self._ids = [*kept, *added]
            self._ids.sort()  # fast: two sorted runs
        return self._ids

    def starting_at(self, first: str) -> Iterator[str]:
        """Return the ids from `first` on."""
        ids = self.ids()
        return islice(ids, bisect_left(ids, first), None)

    def after(self, last: str) -> Iterator[str]:
        """Return the ids after `last`."""
        ids = self.ids()
        return islice(ids, bisect_right(ids, last), None)


async def visible_scopes(replica: Replica, ids: Iterable[str], caller: Caller) -> AsyncIterator[Scope]:
    """Yield the scopes that exist and that the caller may see."""
    async for id_ in iterate_gradually(ids):
        scope, _ = replica.newest(id_)
        if scope is not None and caller.can_see(id_):
            yield scope


async def first_page(items: AsyncIterator[T], limit: int) -> tuple[list[T], bool]:
    """Return the first `limit` items, and whether there are more."""
    found: list[T] = []
    async for item in items:
        if len(found) == limit:
            return found, True
        found.append(item)
    return found, False
