"""Lists, a page at a time, of a fleet that may have 100,000 scopes: nobody else waits for a long one."""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import yielding
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.access import Caller

T = TypeVar("T")


class Roll:
    """The ids of all scopes, in order. What has come or gone since it was last asked for is put in its place then."""

    def __init__(self, fleet: Fleet) -> None:
        self._ids = sorted(view.id for view in fleet.replica.views())
        self._known = set(self._ids)
        self._changed: dict[str, ScopeView] = {}
        fleet.on_change(self._note)

    def _note(self, view: ScopeView) -> None:
        if (view.scope is not None) != (view.id in self._known):
            self._changed[view.id] = view
        else:
            self._changed.pop(view.id, None)

    def ids(self) -> list[str]:
        """Return the ids; the list stays as it is, whatever comes or goes later."""
        if self._changed:
            come = sorted(id_ for id_, view in self._changed.items() if view.scope is not None)
            gone = self._changed.keys() - come
            self._changed = {}
            self._known.update(come)
            self._known -= gone
            left = [id_ for id_ in self._ids if id_ not in gone] if gone else self._ids
            self._ids = [*left, *come]
            self._ids.sort()  # two runs that are in order each: little work
        return self._ids

    def starting_at(self, first: str) -> Iterator[str]:
        """Give the ids from `first` on."""
        ids = self.ids()
        return islice(ids, bisect_left(ids, first), None)

    def after(self, last: str) -> Iterator[str]:
        """Give the ids after `last`."""
        ids = self.ids()
        return islice(ids, bisect_right(ids, last), None)


async def seen_scopes(replica: Replica, ids: Iterable[str], caller: Caller) -> AsyncIterator[Scope]:
    """Give those of the scopes that are there and that the caller may see."""
    async for id_ in yielding(ids):
        scope, _ = replica.newest(id_)
        if scope is not None and caller.sees(id_):
            yield scope


async def first_of(items: AsyncIterator[T], limit: int) -> tuple[list[T], bool]:
    """Return the first of the items, and whether there are more."""
    found: list[T] = []
    async for item in items:
        if len(found) == limit:
            return found, True
        found.append(item)
    return found, False
