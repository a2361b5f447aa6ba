"""Letting time act on scopes: on one when its moment has come, on all when what holds for all of them has changed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from forewarn.core.lifecycle import tick
from forewarn.fleet.errors import NoSuchScope, NotSaved
from forewarn.fleet.replica import View
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.turns import Turns

log = logging.getLogger(__name__)

RETRY = 1.0
"""How soon, in seconds, a scope is looked at again whose due change could not be saved."""

AT_ONCE = 512
"""On how many scopes time acts at once. When ten thousand are due in one second, an approval waits for few of them."""


class Ticking:
    """The scopes on which time acts now.

    `before` is awaited before it acts on any. Afterwards `look` is called where nothing has changed: what has changed
    was looked at when it was saved. `set_alarm` is called in any case, with the time up to which time has acted.
    """

    def __init__(
        self,
        scopes: Scopes,
        tasks: asyncio.TaskGroup,
        *,
        before: Callable[[], Awaitable[None]],
        look: Callable[[View], None],
        set_alarm: Callable[[View, datetime], None],
    ) -> None:
        self._scopes = scopes
        self._tasks = tasks
        self._before = before
        self._look = look
        self._set_alarm = set_alarm
        self._places = asyncio.Semaphore(AT_ONCE)
        self._without_place = 0
        self._all_have_places = asyncio.Event()
        self._all_have_places.set()
        self.busy = 0
        """How much of it is under way."""

    def wake(self, id_: str) -> None:
        """Let time act on a scope."""
        self.busy += 1
        self._without_place += 1
        self._all_have_places.clear()
        self._tasks.create_task(self._act(id_), name=f"tick {id_}")

    def wake_all(self, turns: Turns, *, also_quiet: bool) -> None:
        """Look at every scope that has events, or at all of them, in turns with whatever else goes on."""
        self.busy += 1
        self._tasks.create_task(self._wake_each(turns, also_quiet=also_quiet), name="look at all scopes")

    async def calm(self) -> None:
        """Return when no scope waits for its turn: what can be done a moment later should be."""
        await self._all_have_places.wait()

    async def _wake_each(self, turns: Turns, *, also_quiet: bool) -> None:
        try:
            views = self._scopes.replica.views()
            for view in [view for view in views if also_quiet or (view.scope and view.scope.events)]:
                await turns.mine()
                if view.scope is not None and view.scope.events:
                    self.wake(view.id)
                else:
                    self._look(view)
        finally:
            self.busy -= 1

    async def _act(self, id_: str) -> None:
        """Let time act on a scope; nothing may be missed because the disk was full for a while."""
        try:
            async with self._places:
                self._take_place()
                is_done = await self._has_acted(id_)
            while not is_done:
                await asyncio.sleep(RETRY)
                is_done = await self._has_acted(id_)
        finally:
            self.busy -= 1

    def _take_place(self) -> None:
        self._without_place -= 1
        if not self._without_place:
            self._all_have_places.set()

    async def _has_acted(self, id_: str) -> bool:
        try:
            await self._before()
            await self._tick(self._scopes.replica.view_ever(id_))
        except NoSuchScope:
            return True
        except NotSaved as error:
            log.warning("what is due in scope %s waits: %s", id_, error)
            return False
        return True

    async def _tick(self, view: View) -> None:
        now, revision = self._scopes.clock.now(), view.revision
        if view.is_awaited:
            view.seen_at = now
        await self._scopes.apply(
            view.id, lambda scope: tick(scope, self._scopes.conditions, now=now, seen_at=view.alive_at)
        )
        if view.revision == revision:
            self._look(view)
        self._set_alarm(view, now)
