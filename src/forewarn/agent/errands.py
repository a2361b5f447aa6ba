"""Handlers at work: sends them on errands, cuts them short when their time is over, and reports how each ended."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from forewarn.agent.handlers.port import Again, Done, Ended, Errand, Failed, Handler
from forewarn.agent.phases import Half, Phase
from forewarn.agent.walk import CutShort, HalfEnded, Happening, RunHalf, Walk
from forewarn.client.leading import is_leader
from forewarn.clock import Clock, wait_until

GRACE = timedelta(seconds=10)
"""How long a handler may take to stop; whoever does not stop is left to himself."""

LONGEST_REASON = 1000

LOG = logging.getLogger("forewarn.agent.errands")

Key = tuple[str, str, Half]


class _Run:
    """One try of one half."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.task: asyncio.Task[None] | None = None
        self.cut = ""


class Errands:
    """Everything that handlers are doing."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        report: Callable[[str, Happening], None],
        *,
        dry_run: bool,
    ) -> None:
        self._handlers, self._clock, self._spawn, self._report = handlers, clock, spawn, report
        self._dry_run = dry_run
        self._runs: dict[Key, _Run] = {}
        self._tellings: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_closed = False

    def run(self, walk: Walk, do: RunHalf) -> None:
        """Begin a half."""
        run = self._runs[walk.id, do.handler, do.half] = _Run(do.attempt)
        run.task = self._spawn(self._half(run, walk, do))

    def cut_short(self, walk: Walk, do: CutShort) -> None:
        """End a half; to ask again for the same does nothing."""
        key = (walk.id, do.handler, do.half)
        run = self._runs.get(key)
        if run is None or run.task is None or run.attempt != do.attempt or run.cut:
            return
        run.cut = do.why
        run.task.cancel()
        self._spawn(self._leave(key, run))

    def tell(self, walk: Walk, phase: Phase, attempt: int) -> None:
        """Tell all handlers of the walk of a phase: each in the order of the phases, and none waits for another.

        Who is told of recovery is also told whether his recover half follows: it does if he may have prepared.
        """
        for step in walk.steps:
            handler = self._handlers.get(step.handler)
            if handler is None:
                continue
            key = (walk.id, step.handler)
            half = Half.RECOVER if phase is Phase.RECOVER and step.is_to_recover else None
            errand = _errand(walk, phase, half, attempt, handler.time_limit)
            task = self._spawn(self._telling(self._tellings.get(key), handler, errand))
            self._tellings[key] = task
            task.add_done_callback(partial(self._told, key))

    def close(self) -> None:
        """Report nothing any more: what is cancelled from now on stays begun in the journal."""
        self._is_closed = True

    async def _half(self, run: _Run, walk: Walk, do: RunHalf) -> None:
        limit = do.until - self._clock.now()
        errand = _errand(walk, walk.phase, do.half, do.attempt, limit)
        try:
            ended = await self._send(do.handler, errand)
        except asyncio.CancelledError:
            if self._is_closed or not run.cut:
                raise
            ended = Again(run.cut)
        self._end(run, (walk.id, do.handler, do.half), ended)

    async def _send(self, name: str, errand: Errand) -> Ended:
        handler = self._handlers.get(name)
        if handler is None:
            return Failed("no handler of this name is configured any more")
        if self._dry_run:
            LOG.info("would %s with %s", errand.half, name, extra={"event": errand.event.id})
            return Done()
        try:
            return await (handler.prepare(errand) if errand.half is Half.PREPARE else handler.recover(errand))
        except Exception as error:
            LOG.exception("%s made a mistake", name, extra={"event": errand.event.id})
            return Failed(f"{type(error).__name__}: {error}")

    def _end(self, run: _Run, key: Key, ended: Ended) -> None:
        if self._runs.get(key) is not run or self._is_closed:
            return
        del self._runs[key]
        id_, handler, half = key
        self._report(id_, HalfEnded(handler, half, run.attempt, _fit_to_keep(ended)))

    async def _leave(self, key: Key, run: _Run) -> None:
        """Wait no longer than a while for one that was cut short."""
        task = run.task
        if task is None:
            return
        over = self._spawn(wait_until(self._clock, self._clock.now() + GRACE))
        try:
            await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        if task.done():
            # It has reported by itself, unless it was cut short before its first turn.
            self._end(run, key, Again(run.cut))
        else:
            LOG.error("%s does not stop, and is left to itself", key[1])
            self._end(run, key, Again(f"{run.cut}; and it does not stop"))

    async def _telling(self, earlier: asyncio.Task[None] | None, handler: Handler, errand: Errand) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        if self._dry_run:
            return
        over = self._spawn(wait_until(self._clock, self._clock.now() + handler.time_limit))
        talk = self._spawn(self._tell(handler, errand))
        try:
            await asyncio.wait({talk, over}, return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                facts = {"event": errand.event.id}
                LOG.warning("%s took too long to hear of %s", handler.name, errand.phase, extra=facts)
        finally:
            over.cancel()
            talk.cancel()

    async def _tell(self, handler: Handler, errand: Errand) -> None:
        try:
            ended = await handler.tell(errand)
        except Exception:
            LOG.exception("%s made a mistake", handler.name, extra={"event": errand.event.id})
            return
        match ended:
            case Again(why) | Failed(why):
                facts = {"event": errand.event.id, "phase": errand.phase}
                LOG.warning("%s could not be told of %s: %s", handler.name, errand.phase, why, extra=facts)
            case Done():
                pass

    def _told(self, key: tuple[str, str], ended: asyncio.Task[None]) -> None:
        if self._tellings.get(key) is ended:
            del self._tellings[key]


def _fit_to_keep(ended: Ended) -> Ended:
    """Make a reason short, and text: programs say what they like."""
    match ended:
        case Done():
            return ended
        case Again(why):
            return Again(_fit(why))
        case Failed(why):
            return Failed(_fit(why))


def _fit(why: str) -> str:
    return why[:LONGEST_REASON].encode(errors="replace").decode()


def _errand(walk: Walk, phase: Phase, half: Half | None, attempt: int, time_limit: timedelta) -> Errand:
    return Errand(
        event=walk.event,
        name=walk.me,
        phase=phase,
        half=half,
        attempt=attempt,
        deadline=walk.event.deadline,
        time_limit=time_limit,
        is_leader=is_leader(walk.event, walk.me),
    )
