"""The agent's main loop: watches events and runs their workflows; no outside error ends it.

Every input goes through `_on_input`: the reducer and the planner compute the change, the store saves it, and only then
are its actions executed. All of that takes one turn of the event loop; longer work runs in tasks that report back as
inputs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from forewarn.agent.context import AgentContext
from forewarn.agent.handler_runner import HandlerRunner
from forewarn.agent.handlers.base import Done, Handler
from forewarn.agent.handlers.programs import DIRECTORY, OrphanProgram, find_orphans, remove_stale_notes
from forewarn.agent.http_api import AgentApi
from forewarn.agent.http_server import HttpServer
from forewarn.agent.lock import acquire_lock
from forewarn.agent.log_events import log_events, write_log
from forewarn.agent.metrics import AgentMetrics
from forewarn.agent.peers import check_peers
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.status import JOURNAL, SOCKET, AgentStatus
from forewarn.agent.workflow.planner import WorkflowContext, advance, handlers_in_use, resume, start
from forewarn.agent.workflow.reducer import apply_input, infer_ending
from forewarn.agent.workflow.state import (
    Action,
    ApprovalFailed,
    Approve,
    Approved,
    CallEnded,
    CallState,
    CancelCall,
    CheckPeers,
    ClockChanged,
    EventRemoved,
    EventSeen,
    EventWorkflow,
    Finish,
    HandlerStep,
    Input,
    NotifyHandlers,
    PeersChecked,
    RecoveredLater,
    StartCall,
    WorkflowChange,
)
from forewarn.agent.workflow.store import WorkflowStore
from forewarn.client.changes import Appeared, Change, Changed, Gone, Started
from forewarn.client.document import Document, Event, event_key
from forewarn.client.errors import ClientError
from forewarn.clock import Timer

RETRY_INTERVAL = timedelta(seconds=5)
"""Pause before a retry of an operation that normally succeeds."""
CLOCK_CHECK_INTERVAL = 2.0
"""How often, in monotonic seconds, to check whether the wall clock was set back."""
ORPHAN_POLL = 0.1
"""How often, in seconds, to check whether a program of an earlier agent has ended: it is no child of this process."""
ENABLE_TIMEOUT = timedelta(seconds=150)
"""How long an empty first document is not taken as "no events": the service may still be enabling the scope."""

LOG = logging.getLogger("forewarn.agent")


class Agent:
    """The workflows of one VM, and everything that is in flight for them."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._clock = context.clock
        started_at = self._clock.now()
        self._metrics = AgentMetrics(context.handlers, started_at)
        self._store = WorkflowStore(
            None if context.dry_run else context.state_directory / JOURNAL,
            on_error=lambda _: self._metrics.count_store_error(),
        )
        self._workflows: dict[str, EventWorkflow] = {}
        self._orphans: list[OrphanProgram] = []
        """The programs of an earlier agent that are still running."""
        self._held: set[str] = set()
        """The workflows that are not resumed yet, because a call of an earlier agent is still running."""
        self._api = AgentApi(context, self._store, self._metrics, self._workflows, self._orphans, started_at=started_at)
        self._logged: dict[str, EventWorkflow] = {}
        self._unconfirmed: set[str] = set()
        """The workflows whose event has not been seen in a document since the start."""
        self._timers: dict[str, Timer] = {}
        self._pauses: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = HandlerRunner(
            context.handlers, self._clock, self._spawn, self._on_input, dry_run=context.dry_run
        )
        self._last_warning = ""
        self.port: int | None = None
        """The TCP port of the HTTP API, once it listens."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agent"]:
        """Watch events and run their workflows while the context is open. What is prepared stays so afterwards.

        Raises only StateDirectoryError.
        """
        async with AsyncExitStack() as stack:
            self._lock_state(stack)
            listener = HttpServer(self._api.respond)
            stack.push_async_callback(listener.aclose)
            stack.push_async_callback(self._shut_down)
            self._spawn(self._listen(listener))
            self._spawn(self._retry_saves())
            self._spawn(self._watch_clock())
            self._spawn(self._run())
            yield self

    @property
    def workflows(self) -> Mapping[str, EventWorkflow]:
        """Every unfinished workflow, by the id of its event in upper case."""
        return self._workflows

    def status(self) -> AgentStatus:
        """Return the status that `agent status` shows."""
        return self._api.status()

    def _lock_state(self, stack: AsyncExitStack) -> None:
        if self._context.dry_run:
            return
        try:
            stack.callback(acquire_lock(self._context.state_directory).release)
        except OSError as error:
            what = "cannot lock %s: %s; a second agent could use it at the same time"
            LOG.error(what, self._context.state_directory, error.strerror)  # noqa: TRY400  # no traceback needed

    async def _listen(self, listener: HttpServer) -> None:
        local = HttpServer(self._api.respond_local)
        if not self._context.dry_run:
            try:
                await local.listen_unix(self._context.state_directory / SOCKET)
            except OSError as error:
                LOG.warning("`agent status` cannot reach this agent: cannot listen on its socket: %s", error)
        try:
            if self._context.listen is not None:
                self.port = await listener.listen_with_retry(
                    self._context.listen, lambda: self._pause(RETRY_INTERVAL), self._api.set_listen_error
                )
            await asyncio.Event().wait()
        finally:
            await local.aclose()

    async def _retry_saves(self) -> None:
        while True:
            await self._store.has_error.wait()
            await self._pause(RETRY_INTERVAL)
            self._store.flush()

    async def _run(self) -> None:
        self._find_orphans()
        for workflow in self._store.load():
            self._load(workflow)
        for program in tuple(self._orphans):
            self._watch_orphan(program)
        # Events that have ended are recovered even if the service does not answer.
        self._advance_all()
        self._api.vm_name = vm_name = await self._fetch_name()
        LOG.info("this VM is %s; polling %s", vm_name, self._context.client.endpoint)
        self._reconcile((await self._first_document()).affecting(vm_name))
        await self._watch()

    async def _fetch_name(self) -> str:
        while True:
            try:
                return await self._context.client.name()
            except ClientError as error:
                self._warn_once("cannot get this VM's name, retrying", error)
            except Exception:
                LOG.exception("internal error while getting this VM's name; retrying")
            await self._pause(RETRY_INTERVAL)

    async def _first_document(self) -> Document:
        """Return the first document. While stored workflows are unconfirmed, wait for one that is not empty."""
        deadline = self._clock.now() + ENABLE_TIMEOUT
        while True:
            try:
                document = await self._context.client.get()
                is_empty = document.incarnation is None and not document.events
                if not (is_empty and self._unconfirmed) or self._clock.now() >= deadline:
                    return document
            except ClientError as error:
                self._warn_once("cannot get the document, retrying", error)
            except Exception:
                LOG.exception("internal error while getting the document; retrying")
            await self._pause(RETRY_INTERVAL)

    async def _watch(self) -> None:
        while True:
            known = tuple(
                workflow.reannounced or workflow.event
                for workflow in self._workflows.values()
                if _is_announced(workflow)
            )
            try:
                async for change in self._context.client.watch(mine=True, since=Document(events=known)):
                    with _logged_errors("internal error while handling a change"):
                        self._on_change(change)
            except Exception:
                LOG.exception("internal error while watching events; restarting the watch")
            await self._pause(RETRY_INTERVAL)

    def _warn_once(self, what: str, error: ClientError) -> None:
        """Log a warning; a repetition is logged at debug level, or an outage would fill the log."""
        text = f"{what}: {error}"
        LOG.log(logging.DEBUG if text == self._last_warning else logging.WARNING, "%s", text)
        self._last_warning = text

    async def _pause(self, time: timedelta) -> None:
        over = asyncio.Event()
        timer = self._clock.call_at(self._clock.now() + time, over.set)
        self._pauses.add(over)
        try:
            await over.wait()
        finally:
            timer.cancel()
            self._pauses.discard(over)

    async def _watch_clock(self) -> None:
        """Detect that the clock was set back, as often happens after a boot, and shift all timers by the difference."""
        while True:
            before = self._clock.now()
            await asyncio.sleep(CLOCK_CHECK_INTERVAL)
            if (now := self._clock.now()) < before:
                with _logged_errors("internal error while shifting timers after the clock was set back"):
                    self._on_clock_change(before - now)

    def _on_clock_change(self, by: timedelta) -> None:
        LOG.warning("the clock of this machine was set back by %.0f s", by.total_seconds())
        for over in self._pauses:
            over.set()
        for id_, workflow in self._workflows.items():
            self._workflows[id_] = apply_input(workflow, ClockChanged(by), now=self._clock.now())
        self._advance_all()

    def _load(self, stored: EventWorkflow) -> None:
        """Resume a stored workflow, unless a call of an earlier agent is still running.

        If its event had not ended, it waits for the first document.
        """
        self._workflows[stored.id] = self._logged[stored.id] = stored
        if stored.ending is None:
            self._unconfirmed.add(stored.id)
        if self._orphaned_calls(stored.id):
            self._held.add(stored.id)
        else:
            self._resume(stored)

    def _resume(self, stored: EventWorkflow) -> None:
        with _logged_errors("internal error while resuming a stored workflow"):
            handlers = self._context.handlers.values()
            at_most_once = frozenset(handler.name for handler in handlers if handler.recovers_at_most_once)
            self._apply(resume(stored, now=self._clock.now(), at_most_once=at_most_once))

    def _find_orphans(self) -> None:
        if self._context.dry_run:
            return
        directory = self._context.state_directory / DIRECTORY
        with _logged_errors("internal error while looking for programs of an earlier agent"):
            self._orphans += find_orphans(directory)
            remove_stale_notes(directory, self._orphans)

    def _orphaned_calls(self, id_: str) -> list[OrphanProgram]:
        return [each for each in self._orphans if each.note.event.upper() == id_ and each.note.call is not None]

    def _watch_orphan(self, program: OrphanProgram) -> None:
        LOG.warning(
            "%s of an earlier agent is still running; waiting for it until %s",
            program.note,
            program.note.until.isoformat(timespec="seconds"),
            extra={"event": program.note.event},
        )
        waiting = self._spawn(self._wait_for_orphan(program))
        if program.note.call is None:
            self._runner.notify_after(program.note.event.upper(), program.note.handler, waiting)

    async def _wait_for_orphan(self, program: OrphanProgram) -> None:
        """Wait for a program of an earlier agent, or end it if it is not needed any more; then resume its workflow."""
        note, facts = program.note, {"event": program.note.event}
        # The monotonic clock limits the wait if the machine's clock was set back.
        limit = min(note.until - self._clock.now(), note.until - note.process.started_at)
        give_up_at = asyncio.get_running_loop().time() + limit.total_seconds()
        while not program.has_exited():
            is_over = asyncio.get_running_loop().time() >= give_up_at
            if reason := "timed out" if is_over else self._reason_to_end(program):
                LOG.warning("ending %s of an earlier agent: %s", note, reason, extra=facts)
                await program.terminate()
                break
            await asyncio.sleep(ORPHAN_POLL)
        LOG.warning("%s of an earlier agent has ended", note, extra=facts)
        program.remove_note()
        self._orphans.remove(program)
        id_ = note.event.upper()
        if id_ in self._held and not self._orphaned_calls(id_):
            self._held.remove(id_)
            self._resume(self._workflows[id_])
            self._advance_all()

    def _reason_to_end(self, program: OrphanProgram) -> str:
        note = program.note
        workflow = self._workflows.get(note.event.upper())
        if workflow is None or note.call is None:
            return ""
        if note.call is HandlerCall.PREPARE and workflow.ending is not None:
            return f"the event is {workflow.ending.value}"
        step = workflow.step(note.handler)
        progress = None if step is None else step.progress(note.call)
        if progress is None or progress.state is not CallState.RUNNING or progress.until is None:
            return ""
        return "timed out" if self._clock.now() >= progress.until else ""

    def _reconcile(self, mine: Document) -> None:
        """Apply to the stored workflows what the first document shows: changes made while no agent was running."""
        now, there = self._clock.now(), {event_key(event): event for event in mine.events}
        for id_, workflow in self._workflows.items():
            if id_ in there:
                self._workflows[id_] = apply_input(workflow, EventSeen(there[id_]), now=now)
            elif id_ in self._unconfirmed:
                self._workflows[id_] = apply_input(workflow, EventRemoved(infer_ending(workflow, now=now)), now=now)
        self._unconfirmed, self._api.has_document = set(), True
        self._advance_all()
        for event in mine.events:
            with _logged_errors("internal error while handling an event"):
                self._on_event(event)

    def _on_change(self, change: Change) -> None:
        match change:
            case Appeared(event) | Changed(event) | Started(event):
                self._on_event(event)
            case Gone(event, how):
                self._on_input(event_key(event), EventRemoved(how))

    def _on_event(self, event: Event) -> None:
        if event_key(event) in self._workflows:
            self._on_input(event_key(event), EventSeen(event))
            return
        steps, is_notify_only = self._choose_steps(event)
        context = WorkflowContext(
            now=self._clock.now(), vm_name=self._api.vm_name or "", **self._context_fields(event_key(event))
        )
        self._apply(start(event, steps, context, is_notify_only=is_notify_only))
        self._advance_all()

    def _choose_steps(self, event: Event) -> tuple[Sequence[HandlerStep], bool]:
        try:
            chosen = [self._context.handlers[name] for name in self._context.choose(event)]
            return [_step(handler) for handler in chosen], not self._context.may_approve(event)
        except Exception:
            LOG.exception("internal error while choosing handlers; none will run", extra={"event": event.id})
            return (), True

    def _on_input(self, id_: str, input_: Input) -> None:
        if id_ not in self._workflows:
            return
        self._workflows[id_] = apply_input(self._workflows[id_], input_, now=self._clock.now())
        if isinstance(input_, CallEnded) and input_.call is HandlerCall.RECOVER and isinstance(input_.result, Done):
            for other, workflow in self._workflows.items():
                if other != id_:
                    settled = apply_input(workflow, RecoveredLater(input_.handler), now=self._clock.now())
                    self._workflows[other] = settled
        self._advance_all()

    def _advance_all(self) -> None:
        """Advance every workflow until nothing changes: one workflow may release a handler that another waits for."""
        while any(
            self._advance(workflow)
            for workflow in tuple(self._workflows.values())
            if workflow.id not in self._unconfirmed | self._held
        ):
            pass

    def _advance(self, workflow: EventWorkflow) -> bool:
        # An error in one workflow must not stop the others.
        with _logged_errors("internal error while advancing a workflow"):
            self._apply(advance(workflow, self._workflow_context(workflow)))
        return self._workflows.get(workflow.id) != workflow

    def _workflow_context(self, workflow: EventWorkflow) -> WorkflowContext:
        return WorkflowContext(now=self._clock.now(), vm_name=workflow.vm_name, **self._context_fields(workflow.id))

    def _context_fields(self, id_: str) -> dict[str, Any]:
        held, busy = handlers_in_use(id_, self._workflows.values())
        peers = frozenset[str]() if self._context.peers is None else self._context.peers.names
        return {
            "policy": self._context.policy,
            "peers": peers,
            "still_needed": held,
            "busy": busy,
            "boot": self._context.boot,
        }

    def _apply(self, change: WorkflowChange) -> None:
        """Save the change, log it, execute its actions: in this order."""
        workflow = change.workflow
        before = self._logged.get(workflow.id)
        self._workflows[workflow.id] = workflow
        if workflow != before and Finish() not in change.actions:
            self._store.save(workflow)
        for log_event in log_events(before, change):
            self._metrics.count(workflow, log_event)
            write_log(workflow, log_event, dry_run=self._context.dry_run)
        self._logged[workflow.id] = workflow
        self._set_timer(change)
        for action in change.actions:
            self._execute(workflow, action)

    def _set_timer(self, change: WorkflowChange) -> None:
        id_ = change.workflow.id
        if (timer := self._timers.pop(id_, None)) is not None:
            timer.cancel()
        if change.wake_at is not None:
            self._timers[id_] = self._clock.call_at(change.wake_at, self._advance_all)

    def _execute(self, workflow: EventWorkflow, action: Action) -> None:
        match action:
            case NotifyHandlers(phase, attempt):
                self._runner.notify(workflow, phase, attempt)
            case StartCall():
                self._runner.start(workflow, action)
            case CancelCall():
                self._runner.cancel(workflow, action)
            case CheckPeers(names):
                self._spawn(self._check_peers(workflow, names))
            case Approve():
                self._spawn(self._approve(workflow))
            case Finish():
                self._finish(workflow)

    async def _check_peers(self, workflow: EventWorkflow, names: tuple[str, ...]) -> None:
        states = () if self._context.peers is None else await check_peers(self._context.peers, names, workflow.event.id)
        self._on_input(workflow.id, PeersChecked(states))

    async def _approve(self, workflow: EventWorkflow) -> None:
        try:
            if not self._context.dry_run:
                await self._context.client.approve(workflow.event)
        except ClientError as error:
            self._on_input(workflow.id, ApprovalFailed(str(error)))
        except Exception as error:
            LOG.exception("internal error while approving", extra={"event": workflow.event.id})
            self._on_input(workflow.id, ApprovalFailed(f"{type(error).__name__}: {error}"))
        else:
            self._on_input(workflow.id, Approved())

    def _finish(self, workflow: EventWorkflow) -> None:
        del self._workflows[workflow.id], self._logged[workflow.id]
        self._store.delete(workflow.id)
        LOG.info("event handling finished", extra={"event": workflow.event.id, "phase": Phase.RECOVER})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("internal error", exc_info=error)

    async def _shut_down(self) -> None:
        """Cancel everything that is in flight. It stays marked as started in the store; the next agent resumes it."""
        LOG.info("agent stopping; events to resume at the next start: %d", len(self._workflows))
        self._runner.close()
        for timer in self._timers.values():
            timer.cancel()
        while tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=RETRY_INTERVAL.total_seconds())
            self._tasks -= tasks


@contextmanager
def _logged_errors(what: str) -> Iterator[None]:
    """Log an internal error and continue: it may concern this event only."""
    try:
        yield
    except Exception:
        LOG.exception("%s", what)


def _step(handler: Handler) -> HandlerStep:
    return HandlerStep(
        handler=handler.name,
        importance=handler.importance,
        time_limit=handler.time_limit,
        retries=handler.retries,
        pause=handler.pause,
        ready_despite_failure=handler.ready_despite_failure,
    )


def _is_announced(workflow: EventWorkflow) -> bool:
    return workflow.ending is None or workflow.reannounced is not None
