"""The agent as it runs: watches, walks, and never dies of what goes wrong around it.

Everything that happens goes through one place, `_happened`: the rules say how the walk goes on, the journal has it, and
only then is anything done. All of that takes one turn of the event loop; what takes longer runs in tasks that report
back as something that happened.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import msgspec

from forewarn.agent.equipment import Equipment
from forewarn.agent.errands import Errands
from forewarn.agent.handlers.port import Handler
from forewarn.agent.http import JSON, TEXT, Answer, Listener, Request, refuse
from forewarn.agent.journal import Journal
from forewarn.agent.metrics import CONTENT_TYPE, Figures
from forewarn.agent.ownership import own
from forewarn.agent.peers import PATH as READY_PATH
from forewarn.agent.peers import answer_peer, ask_peers
from forewarn.agent.phases import Phase
from forewarn.agent.remarks import remarks
from forewarn.agent.saying import say
from forewarn.agent.status import JOURNAL, SOCKET, Status, show_walks
from forewarn.agent.status import PATH as STATUS_PATH
from forewarn.agent.taking import ending_of, take
from forewarn.agent.walk import (
    ApprovalFailed,
    Approve,
    Approved,
    AskPeers,
    CutShort,
    Do,
    Finish,
    Happening,
    Next,
    PeersSaid,
    RunHalf,
    Seen,
    SetBack,
    Step,
    Tell,
    Walk,
    Went,
)
from forewarn.agent.walking import World, advance, around, resume, start
from forewarn.client.changes import Appeared, Change, Changed, Gone, Started
from forewarn.client.document import Document, Event, key
from forewarn.client.errors import ClientError
from forewarn.clock import Timer

PAUSE = timedelta(seconds=5)
"""How long to wait before trying again what should always work."""
LOOK_AT_CLOCK = 2.0
"""How often, in seconds of no wall clock, it is looked whether that was set back."""
ENABLED_WITHIN = timedelta(seconds=150)
"""How long a service may say nothing before that counts as saying that nothing is planned."""

LOG = logging.getLogger("forewarn.agent")


class Agent:
    """The walks of one VM, and everything that is under way for them."""

    def __init__(self, equipment: Equipment) -> None:
        self._with = equipment
        self._clock = equipment.clock
        self._started_at = self._clock.now()
        self._figures = Figures(equipment.handlers, self._started_at)
        self._journal = Journal(
            None if equipment.dry_run else equipment.state_directory / JOURNAL,
            on_trouble=lambda _: self._figures.count_journal_trouble(),
        )
        self._walks: dict[str, Walk] = {}
        self._said: dict[str, Walk] = {}
        self._unseen: set[str] = set()
        """The walks of which nobody knows yet whether their event is still there."""
        self._timers: dict[str, Timer] = {}
        self._pauses: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._errands = Errands(equipment.handlers, self._clock, self._spawn, self._happened, dry_run=equipment.dry_run)
        self._name: str | None = None
        self._has_looked = False
        self._grumbled = ""
        self._listens_not: str | None = None
        self.port: int | None = None
        """Where it listens, once it does."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agent"]:
        """Watch and walk for as long as the context lasts. What is prepared then stays so, for the next agent.

        Raises UnusableState, and nothing else.
        """
        async with AsyncExitStack() as stack:
            self._own_state(stack)
            listener = Listener(self.answer)
            stack.push_async_callback(listener.aclose)
            stack.push_async_callback(self._end)
            self._spawn(self._listen(listener))
            self._spawn(self._keep_journal())
            self._spawn(self._mind_the_clock())
            self._spawn(self._work())
            yield self

    @property
    def walks(self) -> Mapping[str, Walk]:
        """Every walk that is not over, by the id of its event in upper case."""
        return self._walks

    def status(self) -> Status:
        """Tell how everything is."""
        return Status(
            is_running=True,
            name=self._name,
            endpoint=self._with.client.endpoint,
            started_at=self._started_at,
            troubles=(*filter(None, self._troubles().values()), *self._journal.unread),
            walks=show_walks(self._walks.values()),
        )

    def answer(self, request: Request) -> Answer:
        """Answer whoever asks over HTTP."""
        if request.method not in {"GET", "HEAD"}:
            return refuse(405, "this agent is only asked", ("Allow", "GET, HEAD"))
        if request.path.startswith(READY_PATH):
            secret = None if self._with.peers is None else self._with.peers.secret
            return answer_peer(request, self._walks, me=self._name, secret=secret)
        match request.path:
            case "/readyz":
                troubles = [why for why in self._troubles().values() if why]
                return Answer(503 if troubles else 200, ("\n".join(troubles or ["ready"]) + "\n").encode(), TEXT)
            case "/metrics":
                troubles_now = {what: why is not None for what, why in self._troubles().items()}
                return Answer(200, self._figures.show(self._walks.values(), troubles_now), CONTENT_TYPE)
            case _:
                return refuse(404, "here are /readyz, /metrics and /v1/ready/<EventId>")

    def _troubles(self) -> dict[str, str | None]:
        service = self._with.client.trouble
        unseen = None if self._has_looked else "the service has not been heard yet"
        return {
            "service": str(service) if service else unseen,
            "journal": self._journal.trouble,
            "listening": self._listens_not,
        }

    def _own_state(self, stack: AsyncExitStack) -> None:
        if self._with.dry_run:
            return
        try:
            stack.callback(os.close, own(self._with.state_directory))
        except OSError as error:
            LOG.error("nothing keeps a second agent from %s: %s", self._with.state_directory, error.strerror)  # noqa: TRY400  # it says all

    async def _listen(self, listener: Listener) -> None:
        inside = Listener(self._answer_inside)
        if not self._with.dry_run:
            try:
                await inside.listen_at(self._with.state_directory / SOCKET)
            except OSError as error:
                LOG.warning("`agent status` cannot ask this agent: %s", error)
        try:
            if self._with.listen is not None:
                self.port = await listener.insist(self._with.listen, lambda: self._pause(PAUSE), self._listens)
            await asyncio.Event().wait()
        finally:
            await inside.aclose()

    def _listens(self, trouble: str | None) -> None:
        self._listens_not = trouble

    def _answer_inside(self, request: Request) -> Answer:
        if request.path == STATUS_PATH:
            return Answer(200, msgspec.json.encode(self.status()), JSON)
        return refuse(404, f"here is {STATUS_PATH}")

    async def _keep_journal(self) -> None:
        while True:
            await self._journal.in_trouble.wait()
            await self._pause(PAUSE)
            self._journal.catch_up()

    async def _work(self) -> None:
        for walk in self._journal.read():
            self._pick_up(walk)
        # What is gone is recovered whether the service answers or not.
        self._settle()
        self._name = await self._own_name()
        LOG.info("this VM is %s; %s is asked for its events", self._name, self._with.client.endpoint)
        self._look_at((await self._first_look()).affecting(self._name))
        await self._watch()

    async def _own_name(self) -> str:
        while True:
            try:
                return await self._with.client.name()
            except ClientError as error:
                self._grumble("this VM's name is not known", error)
            except Exception:
                LOG.exception("asking for this VM's name failed")
            await self._pause(PAUSE)

    async def _first_look(self) -> Document:
        """Return the first document that says something, if walks from the journal depend on it."""
        give_up_at = self._clock.now() + ENABLED_WITHIN
        while True:
            try:
                document = await self._with.client.get()
                says_nothing = document.incarnation is None and not document.events
                if not (says_nothing and self._unseen) or self._clock.now() >= give_up_at:
                    return document
            except ClientError as error:
                self._grumble("the service does not say what is planned", error)
            except Exception:
                LOG.exception("asking what is planned failed")
            await self._pause(PAUSE)

    async def _watch(self) -> None:
        while True:
            known = tuple(walk.comeback or walk.event for walk in self._walks.values() if _is_there(walk))
            try:
                async for change in self._with.client.watch(mine=True, since=Document(events=known)):
                    with _surviving("a change cannot be dealt with"):
                        self._changed(change)
            except Exception:
                LOG.exception("watching failed; it begins anew")
            await self._pause(PAUSE)

    def _grumble(self, what: str, error: ClientError) -> None:
        """Warn, but not twice of the same: a VM without a service would fill its log with it."""
        text = f"{what}: {error}"
        LOG.log(logging.DEBUG if text == self._grumbled else logging.WARNING, "%s", text)
        self._grumbled = text

    async def _pause(self, time: timedelta) -> None:
        over = asyncio.Event()
        timer = self._clock.call_at(self._clock.now() + time, over.set)
        self._pauses.add(over)
        try:
            await over.wait()
        finally:
            timer.cancel()
            self._pauses.discard(over)

    async def _mind_the_clock(self) -> None:
        """Notice when the clock is set back, as happens soon after a boot: nothing may wait until it has caught up."""
        while True:
            before = self._clock.now()
            await asyncio.sleep(LOOK_AT_CLOCK)
            if (now := self._clock.now()) < before:
                with _surviving("the clock was set back, and not everything is reckoned anew"):
                    self._set_back(before - now)

    def _set_back(self, by: timedelta) -> None:
        LOG.warning("the clock of this machine was set back by %.0f s", by.total_seconds())
        for over in self._pauses:
            over.set()
        for id_, walk in self._walks.items():
            self._walks[id_] = take(walk, SetBack(by), now=self._clock.now())
        self._settle()

    def _pick_up(self, kept: Walk) -> None:
        """Go on with a walk from the journal: if its event was there, once it is known whether it still is."""
        self._said[kept.id] = kept
        if kept.gone is None:
            self._unseen.add(kept.id)
        with _surviving("a walk from the journal cannot go on"):
            self._apply(resume(kept, now=self._clock.now()))

    def _look_at(self, mine: Document) -> None:
        """Take the first document as what happened while nobody looked."""
        now, there = self._clock.now(), {key(event): event for event in mine.events}
        for id_, walk in self._walks.items():
            if id_ in there:
                self._walks[id_] = take(walk, Seen(there[id_]), now=now)
            elif id_ in self._unseen:
                self._walks[id_] = take(walk, Went(ending_of(walk, now=now)), now=now)
        self._unseen, self._has_looked = set(), True
        self._settle()
        for event in mine.events:
            with _surviving("an event cannot be dealt with"):
                self._seen(event)

    def _changed(self, change: Change) -> None:
        match change:
            case Appeared(event) | Changed(event) | Started(event):
                self._seen(event)
            case Gone(event, how):
                self._happened(key(event), Went(how))

    def _seen(self, event: Event) -> None:
        if key(event) in self._walks:
            self._happened(key(event), Seen(event))
            return
        steps, is_only_told = self._chosen(event)
        world = World(now=self._clock.now(), me=self._name or "", **self._surroundings(key(event)))
        self._apply(start(event, steps, world, is_only_told=is_only_told))
        self._settle()

    def _chosen(self, event: Event) -> tuple[Sequence[Step], bool]:
        try:
            chosen = [self._with.handlers[name] for name in self._with.choose(event)]
            return [_step(handler) for handler in chosen], not self._with.may_approve(event)
        except Exception:
            LOG.exception("no handlers could be chosen", extra={"event": event.id})
            return (), True

    def _happened(self, id_: str, happening: Happening) -> None:
        if id_ not in self._walks:
            return
        self._walks[id_] = take(self._walks[id_], happening, now=self._clock.now())
        self._settle()

    def _settle(self) -> None:
        """Let every walk go on: one may have waited for what another has let go."""
        while any(self._goes_on(walk) for walk in tuple(self._walks.values()) if walk.id not in self._unseen):
            pass

    def _goes_on(self, walk: Walk) -> bool:
        # One walk that cannot go on must not keep the others from it.
        with _surviving("a walk cannot go on"):
            self._apply(advance(walk, self._world(walk)))
        return self._walks.get(walk.id) != walk

    def _world(self, walk: Walk) -> World:
        return World(now=self._clock.now(), me=walk.me, **self._surroundings(walk.id))

    def _surroundings(self, id_: str) -> dict[str, Any]:
        held, busy = around(id_, self._walks.values())
        peers = frozenset[str]() if self._with.peers is None else self._with.peers.names
        return {"policy": self._with.policy, "peers": peers, "held": held, "busy": busy, "boot": self._with.boot}

    def _apply(self, following: Next) -> None:
        """Keep, say, do: in this order."""
        walk = following.walk
        before = self._said.get(walk.id)
        self._walks[walk.id] = walk
        if walk != before and Finish() not in following.todo:
            self._journal.save(walk)
        for remark in remarks(before, following):
            self._figures.count(walk, remark)
            say(walk, remark, dry_run=self._with.dry_run)
        self._said[walk.id] = walk
        self._set_timer(following)
        for do in following.todo:
            self._do(walk, do)

    def _set_timer(self, following: Next) -> None:
        id_ = following.walk.id
        if (timer := self._timers.pop(id_, None)) is not None:
            timer.cancel()
        if following.wake_at is not None:
            self._timers[id_] = self._clock.call_at(following.wake_at, self._settle)

    def _do(self, walk: Walk, do: Do) -> None:
        match do:
            case Tell(phase, attempt):
                self._errands.tell(walk, phase, attempt)
            case RunHalf():
                self._errands.run(walk, do)
            case CutShort():
                self._errands.cut_short(walk, do)
            case AskPeers(names):
                self._spawn(self._ask(walk, names))
            case Approve():
                self._spawn(self._approve(walk))
            case Finish():
                self._finish(walk)

    async def _ask(self, walk: Walk, names: tuple[str, ...]) -> None:
        words = () if self._with.peers is None else await ask_peers(self._with.peers, names, walk.event.id)
        self._happened(walk.id, PeersSaid(words))

    async def _approve(self, walk: Walk) -> None:
        try:
            if not self._with.dry_run:
                await self._with.client.approve(walk.event)
        except ClientError as error:
            self._happened(walk.id, ApprovalFailed(str(error)))
        except Exception as error:
            LOG.exception("the approval failed", extra={"event": walk.event.id})
            self._happened(walk.id, ApprovalFailed(f"{type(error).__name__}: {error}"))
        else:
            self._happened(walk.id, Approved())

    def _finish(self, walk: Walk) -> None:
        del self._walks[walk.id], self._said[walk.id]
        self._journal.strike(walk.id)
        LOG.info("the walk is over", extra={"event": walk.event.id, "phase": Phase.RECOVER})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a mistake of this agent", exc_info=error)

    async def _end(self) -> None:
        """End everything that is under way. The journal keeps it as begun, for the next agent."""
        LOG.info("the agent ends; events that the next one goes on with: %d", len(self._walks))
        self._errands.close()
        for timer in self._timers.values():
            timer.cancel()
        while tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PAUSE.total_seconds())
            self._tasks -= tasks


@contextmanager
def _surviving(what: str) -> Iterator[None]:
    """Go on after a mistake of this agent: the next event may not make it."""
    try:
        yield
    except Exception:
        LOG.exception("%s", what)


def _step(handler: Handler) -> Step:
    return Step(
        handler=handler.name,
        importance=handler.importance,
        time_limit=handler.time_limit,
        retries=handler.retries,
        pause=handler.pause,
        ready_despite_failure=handler.ready_despite_failure,
    )


def _is_there(walk: Walk) -> bool:
    return walk.gone is None or walk.comeback is not None
