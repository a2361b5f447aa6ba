"""Control client: sends the commands of a host, and waits until the host's replica has their effect."""

import asyncio
import time
from collections import deque
from secrets import token_hex
from typing import Protocol, TypeVar

from forewarn.core.backoff import backoff
from forewarn.core.clock_offset import TimeResponse
from forewarn.core.impact import Done, Failed, ImpactOutcome, Retry, Unknown
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.host.commands import (
    Approve,
    Begin,
    CommandResponse,
    HostCommand,
    Settle,
    decode_response,
    encode,
)
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.platform.port import Work
from forewarn.store.port import SaveUnknown, StoreUnavailable

PATIENCE_SECONDS = 8.0
"""How long a command without an answer is repeated."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 1.0
"""The pauses, in seconds, before it is repeated while no control node can be reached."""

CATCH_UP_SECONDS = 2.0
"""How long to wait until the replica has the effect of a command."""

MAX_TIMES = 5
"""Over how many answers the time of the cluster is averaged."""

C = TypeVar("C", bound=HostCommand)


class CommandTransport(Protocol):
    """Takes commands to the control nodes."""

    async def request(self, name: str, body: bytes) -> bytes:
        """Send a command and return the answer.

        Raises StoreUnavailable if it had no effect, and SaveUnknown if it may have had one.
        """
        ...


class ControlClient:
    """Sends the commands of one process of a host."""

    def __init__(self, transport: CommandTransport, host: str, replica: Replica) -> None:
        self._transport = transport
        self.host = host
        self.process = token_hex(12)
        self.term = 0
        """The term that this process was granted; 0: none yet."""
        self.answered_at: float | None = None
        """When a control node last answered, by the event loop's clock."""
        self.times: deque[TimeResponse] = deque(maxlen=MAX_TIMES)
        """The time of the cluster in the last answers, of any control node."""
        self._replica = replica
        self._waiters: dict[ScopeView, list[tuple[int, asyncio.Event]]] = {}

    async def send(self, command: HostCommand) -> CommandResponse:
        """Send a command, again if there is no answer, and return the response.

        Raises the refusals of the rules, SaveFailed if the command had no effect, and OutcomeUnknown.
        """
        loop, pauses = asyncio.get_running_loop(), backoff(FIRST_PAUSE, LONGEST_PAUSE)
        deadline, body, is_uncertain = loop.time() + PATIENCE_SECONDS, encode(command), False
        while True:
            sent = time.monotonic()
            try:
                response = decode_response(await self._transport.request(command.name, body))
            except StoreUnavailable as error:
                if not is_uncertain:
                    raise SaveFailed(f"no control node answers ({error.reason})") from error
                await asyncio.sleep(next(pauses))
            except SaveUnknown:
                is_uncertain = True
            else:
                self.answered_at = loop.time()
                if response.at is not None:
                    self.times.append(TimeResponse(at=response.at, sent=sent, received=time.monotonic()))
                if response.status != "unknown":
                    response.check()
                    return response
                is_uncertain = True
            if loop.time() > deadline:
                raise OutcomeUnknown("no control node has answered")

    async def approve(self, scope: str, vm: str, ids: tuple[str, ...]) -> None:
        """Record the approval of a VM on this host; on return the replica has its effect, or will have it soon."""
        command = Approve(
            process=self.process, term=self.term, scope=scope, revision=self._revision(scope), vm=vm, events=ids
        )
        response = await self.send(command)
        await self.catch_up(scope, response.revision, CATCH_UP_SECONDS)

    async def begin(self, scope: str, event: str, vm: str, *, attempt: int, again: bool) -> Work:
        """Save that an impact begins as this attempt, and return its work."""
        command = Begin(
            process=self.process,
            term=self.term,
            scope=scope,
            revision=self._revision(scope),
            event=event,
            vm=vm,
            attempt=attempt,
            again=again,
        )
        response = await self.send(command)
        if response.work is None:
            raise SaveFailed("the answer of the control node has no work")
        return response.work

    async def settle(self, work: Work, outcome: ImpactOutcome) -> None:
        """Save the outcome of an impact; on return the replica has it, so that it is not taken for begun."""
        command = Settle(
            process=self.process,
            term=self.term,
            scope=work.scope,
            revision=self._revision(work.scope),
            event=work.event,
            vm=work.vm,
            attempt=work.attempt,
            done=outcome if isinstance(outcome, Done) else None,
            failed=outcome if isinstance(outcome, Failed) else None,
            retry=outcome if isinstance(outcome, Retry) else None,
            unknown=outcome if isinstance(outcome, Unknown) else None,
        )
        response = await self.send(command)
        await self.catch_up(work.scope, response.revision, None)

    def _revision(self, scope: str) -> int:
        return self._replica.get_or_create_view(scope).revision

    async def catch_up(self, scope: str, revision: int, seconds: float | None) -> None:
        """Return when the replica has this revision of a scope, or after some seconds."""
        view = self._replica.get_or_create_view(scope)
        if view.revision >= revision:
            return
        reached = asyncio.Event()
        waiters = self._waiters.setdefault(view, [])
        waiters.append((revision, reached))
        try:
            async with asyncio.timeout(seconds):
                await reached.wait()
        except TimeoutError:
            return
        finally:
            waiters.remove((revision, reached))
            if not waiters:
                self._waiters.pop(view, None)

    def observe(self, view: ScopeView) -> None:
        """Wake those who wait for a revision that the view has now."""
        for revision, reached in self._waiters.get(view, ()):
            if view.revision >= revision:
                reached.set()
