"""Handler runner: starts and cancels prepare and recover calls, notifies handlers of phases, and reports results."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from forewarn.agent.handlers.base import CallResult, Done, Failed, Handler, HandlerContext, Retry, Unknown
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.workflow.state import CallEnded, CancelCall, EventWorkflow, Input, StartCall
from forewarn.client.leader_election import is_leader
from forewarn.clock import Clock, wait_until

GRACE = timedelta(seconds=10)
"""How long a cancelled call may take to stop. After that the agent no longer waits for it."""

LONGEST_REASON = 1000

LOG = logging.getLogger(__name__)

Key = tuple[str, str, HandlerCall]


class _RunningCall:
    """One attempt of one handler call."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.task: asyncio.Task[None] | None = None
        self.cancel_reason = ""


class HandlerRunner:
    """Runs handler calls and notifications as tasks, each with its time limit."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        report: Callable[[str, Input], None],
        *,
        dry_run: bool,
    ) -> None:
        self._handlers, self._clock, self._spawn, self._report = handlers, clock, spawn, report
        self._dry_run = dry_run
        self._calls: dict[Key, _RunningCall] = {}
        self._notifications: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_closed = False

    def start(self, workflow: EventWorkflow, action: StartCall) -> None:
        """Start a handler call."""
        run = self._calls[workflow.id, action.handler, action.call] = _RunningCall(action.attempt)
        run.task = self._spawn(self._run(run, workflow, action))

    def cancel(self, workflow: EventWorkflow, action: CancelCall) -> None:
        """Cancel a handler call. Idempotent."""
        key = (workflow.id, action.handler, action.call)
        run = self._calls.get(key)
        if run is None or run.task is None or run.attempt != action.attempt or run.cancel_reason:
            return
        run.cancel_reason = action.reason
        run.task.cancel()
        self._spawn(self._await_cancelled(key, run))

    def notify(self, workflow: EventWorkflow, phase: Phase, attempt: int) -> None:
        """Notify all handlers of the workflow of a phase. Each gets the phases in order; handlers run in parallel.

        The context of the recovery notification has `call` set if a recover call follows, that is, if the handler may
        have prepared something.
        """
        for step in workflow.steps:
            handler = self._handlers.get(step.handler)
            if handler is None:
                continue
            key = (workflow.id, step.handler)
            call = HandlerCall.RECOVER if phase is Phase.RECOVER and step.needs_recovery else None
            context = _handler_context(workflow, phase, call, attempt, handler.time_limit)
            task = self._spawn(self._notify_in_order(self._notifications.get(key), handler, context))
            self._notifications[key] = task
            task.add_done_callback(partial(self._remove_notification, key))

    def notify_after(self, id_: str, handler: str, previous: asyncio.Task[None]) -> None:
        """Let the notifications of a handler wait for one that an earlier agent has started."""
        self._notifications[id_, handler] = previous
        previous.add_done_callback(partial(self._remove_notification, (id_, handler)))

    def close(self) -> None:
        """Stop reporting. Calls that are cancelled from now on stay marked as started in the workflow store."""
        self._is_closed = True

    async def _run(self, run: _RunningCall, workflow: EventWorkflow, action: StartCall) -> None:
        limit = action.until - self._clock.now()
        context = _handler_context(workflow, workflow.phase, action.call, action.attempt, limit)
        try:
            result = await self._call(action.handler, context)
        except asyncio.CancelledError:
            if self._is_closed or not run.cancel_reason:
                raise
            result = Retry(run.cancel_reason)
        self._end(run, (workflow.id, action.handler, action.call), result)

    async def _call(self, name: str, context: HandlerContext) -> CallResult:
        handler = self._handlers.get(name)
        if handler is None:
            return Failed("no handler of this name is configured now")
        if self._dry_run:
            LOG.info("would %s with %s", context.call, name, extra={"event": context.event.id})
            return Done()
        try:
            return await (handler.prepare(context) if context.call is HandlerCall.PREPARE else handler.recover(context))
        except Exception as error:
            LOG.exception("internal error in handler %s", name, extra={"event": context.event.id})
            return Failed(f"{type(error).__name__}: {error}")

    def _end(self, run: _RunningCall, key: Key, result: CallResult) -> None:
        if self._calls.get(key) is not run or self._is_closed:
            return
        del self._calls[key]
        id_, handler, call = key
        result = _sanitize_result(result)
        found = self._handlers.get(handler)
        if call is HandlerCall.RECOVER and found is not None and found.recovers_at_most_once:
            result = _not_repeated(result, is_cancelled=bool(run.cancel_reason))
        self._report(id_, CallEnded(handler, call, run.attempt, result))

    async def _await_cancelled(self, key: Key, run: _RunningCall) -> None:
        """Wait at most `GRACE` for a cancelled call to end."""
        task = run.task
        if task is None:
            return
        over = self._spawn(wait_until(self._clock, self._clock.now() + GRACE))
        try:
            await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        if task.done():
            # The call has reported its end itself, unless it was cancelled before its first turn.
            self._end(run, key, Retry(run.cancel_reason))
        else:
            LOG.error("handler %s did not stop within %.0f s; no longer waiting for it", key[1], GRACE.total_seconds())
            self._end(run, key, Retry(f"{run.cancel_reason}; it did not stop when cancelled"))

    async def _notify_in_order(
        self, previous: asyncio.Task[None] | None, handler: Handler, context: HandlerContext
    ) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        if self._dry_run:
            return
        over = self._spawn(wait_until(self._clock, self._clock.now() + handler.time_limit))
        notification = self._spawn(self._notify(handler, context))
        try:
            await asyncio.wait({notification, over}, return_when=asyncio.FIRST_COMPLETED)
            if not notification.done():
                facts = {"event": context.event.id}
                LOG.warning("%s: notification of %s timed out", handler.name, context.phase, extra=facts)
        finally:
            over.cancel()
            notification.cancel()

    async def _notify(self, handler: Handler, context: HandlerContext) -> None:
        try:
            result = await handler.notify(context)
        except Exception:
            LOG.exception("internal error in handler %s", handler.name, extra={"event": context.event.id})
            return
        match result:
            case Retry(why) | Failed(why) | Unknown(why):
                facts = {"event": context.event.id, "phase": context.phase}
                LOG.warning("%s: notification of %s failed: %s", handler.name, context.phase, why, extra=facts)
            case Done():
                pass

    def _remove_notification(self, key: tuple[str, str], ended: asyncio.Task[None]) -> None:
        if self._notifications.get(key) is ended:
            del self._notifications[key]


def _sanitize_result(result: CallResult) -> CallResult:
    """Shorten the reason and make it valid text: it may contain arbitrary output of a program."""
    match result:
        case Done():
            return result
        case Retry(why):
            return Retry(_sanitize(why))
        case Failed(why):
            return Failed(_sanitize(why))
        case Unknown(why):
            return Unknown(_sanitize(why))


def _not_repeated(result: CallResult, *, is_cancelled: bool) -> CallResult:
    """Return the result of a recovery that runs at most once: repeated only if it asks for that itself."""
    match result:
        case Failed(why):
            return Unknown(why)
        case Retry(why) if is_cancelled:
            return Unknown(why)
        case _:
            return result


def _sanitize(reason: str) -> str:
    return reason[:LONGEST_REASON].encode(errors="replace").decode()


def _handler_context(
    workflow: EventWorkflow, phase: Phase, call: HandlerCall | None, attempt: int, time_limit: timedelta
) -> HandlerContext:
    return HandlerContext(
        event=workflow.event,
        name=workflow.vm_name,
        phase=phase,
        call=call,
        attempt=attempt,
        deadline=workflow.event.deadline,
        time_limit=time_limit,
        is_leader=is_leader(workflow.event, workflow.vm_name),
    )
