"""Command handler: what a control node does with the commands of hosts. Each VM must be on the host that asks."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.errors import CoreError, WrongHost
from forewarn.core.impact_lifecycle import Worker
from forewarn.core.scope import Scope
from forewarn.fleet.clock_offset import ClockOffset
from forewarn.fleet.errors import FleetError
from forewarn.fleet.host.commands import (
    Approve,
    Begin,
    Claim,
    ClaimResult,
    CommandResponse,
    HostCommand,
    Release,
    Renew,
    ReportPorts,
    ScopeCommand,
    Seen,
    Settle,
    decode_command,
    encode,
)
from forewarn.fleet.host.registry import HostRegistry, digest_scopes
from forewarn.fleet.impact_writer import begin_work, settle_work
from forewarn.fleet.last_seen import LastSeenTracker
from forewarn.fleet.main_loop import Decision
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes, guarded

log = logging.getLogger(__name__)
R = TypeVar("R")

INVALID = "invalid-command"


class CommandHandler:
    """Answers the commands of hosts, through the main loop."""

    def __init__(
        self,
        registry: HostRegistry,
        scopes: Scopes,
        last_seen: LastSeenTracker,
        clock_offset: ClockOffset | None = None,
    ) -> None:
        self._clock_offset = clock_offset
        self._registry = registry
        self._scopes = scopes
        self._last_seen = last_seen

    def hear(self, host: str, name: str, body: bytes) -> None:
        """Note what every control node must know: who was heard from, and which scopes have polled."""
        if name not in (Renew.name, Seen.name):
            return
        try:
            command = decode_command(name, body)
        except (ValueError, msgspec.MsgspecError):
            return
        self._registry.hear(host, command.process)
        if isinstance(command, Renew):
            self._registry.clock_offsets[host] = command.clock_offset
        if isinstance(command, Seen):
            self._note_polls(host, command)

    async def answer(self, host: str, name: str, body: bytes) -> bytes:
        """Carry out a command and return the response."""
        try:
            response = await self._handle(host, decode_command(name, body))
        except (CoreError, FleetError) as error:
            response = CommandResponse.from_error(error)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("host %s has sent an invalid command %s: %s", host, name, error)
            response = CommandResponse(status="refused", code=INVALID, text=str(error))
        return encode(response)

    async def _handle(self, host: str, command: HostCommand) -> CommandResponse:
        registry = self._registry
        if isinstance(command, Claim):
            term = await registry.claim(
                host,
                command.process,
                command.holder,
                command.ports,
                version=command.version,
                format_=command.format,
            )
            return CommandResponse(status="saved", term=term)
        worker = await registry.check_term(host, command.process, command.term)
        if isinstance(command, ScopeCommand):
            await self._scopes.catch_up(command.scope, command.revision)
        match command:
            case Renew():
                registry.hear(host, command.process)
                scopes = registry.scopes_of(host)
                term = ClaimResult(term=worker.term, scopes=None if digest_scopes(scopes) == command.scopes else scopes)
                at = None if self._clock_offset is None else self._clock_offset.cluster_time()
                return CommandResponse(status="saved", term=term, at=at)
            case Release():
                await registry.release(host, command.process)
            case ReportPorts():
                await registry.assign_ports(host, command.process, command.address, command.ports)
            case Approve():
                return await self._apply(worker, command.scope, lambda scope: self._approve(scope, worker, command))
            case Seen():
                return await self._mark_seen(host, command)
            case Begin():
                return await self._begin(worker, command)
            case Settle():
                return await self._apply(worker, command.scope, lambda scope: self._settle(scope, worker, command))
            case _:
                raise ValueError(f"{command.name} is not handled")
        return CommandResponse(status="saved")

    def _now(self) -> datetime:
        return self._scopes.clock.now()

    def _approve(self, scope: Scope, worker: Worker, command: Approve) -> Change[None]:
        if scope.vm(command.vm).host != worker.host:
            raise WrongHost(f"{scope.id}/{command.vm}", worker.host or "", worker.term)
        return approve(scope, command.vm, command.events, self._scopes.rule_context, now=self._now())

    def _settle(self, scope: Scope, worker: Worker, command: Settle) -> Change[None]:
        return settle_work(
            scope,
            command.event,
            command.vm,
            command.outcome,
            self._scopes.rule_context,
            now=self._now(),
            attempt=command.attempt,
            worker=worker,
        )

    async def _begin(self, worker: Worker, command: Begin) -> CommandResponse:
        work = await self._apply_guarded(
            worker,
            command.scope,
            lambda scope: begin_work(
                scope,
                command.event,
                command.vm,
                now=self._now(),
                again=command.again,
                attempt=command.attempt,
                worker=worker,
            ),
        )
        return CommandResponse(status="saved", work=work, revision=self._revision(command.scope))

    async def _apply(self, worker: Worker, scope: str, rule: Callable[[Scope], Change[None]]) -> CommandResponse:
        await self._apply_guarded(worker, scope, rule)
        return CommandResponse(status="saved", revision=self._revision(scope))

    async def _apply_guarded(self, worker: Worker, scope: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule, and save only if the term of the host has not ended."""

        def decide(value: Scope) -> Decision[Scope, R]:
            return guarded(rule(value), self._registry.guards(worker))

        return await self._scopes.apply(scope, decide)

    def _revision(self, scope: str) -> int:
        return self._scopes.replica.get_or_create_view(scope).revision

    async def _mark_seen(self, host: str, command: Seen) -> CommandResponse:
        """Enable the scopes that have polled and are not enabled, and note the times of the others."""
        revision = 0
        for view in self._note_polls(host, command):
            is_enabled = view.scope is not None and view.scope.enabled
            if not is_enabled and (saving := self._last_seen.record_request(view)) is not None:
                await saving
            revision = max(revision, view.revision)
        return CommandResponse(status="saved", revision=revision)

    def _note_polls(self, host: str, command: Seen) -> list[ScopeView]:
        """Note the polls of the host's own VMs, by the clock of this process; return the scopes of these VMs."""
        now = self._now()
        shift = now - command.sent_at if command.sent_at is not None else timedelta(0)
        views: list[ScopeView] = []
        for id_, polls in command.scopes.items():
            view = self._scopes.replica.get_or_create_view(id_)
            own = {vm.name for vm in view.roster or () if vm.host == host}
            if not own:
                continue
            view.seen_at = max(filter(None, (view.seen_at, min(polls.seen_at + shift, now))))
            view.polled_at |= {name: min(at + shift, now) for name, at in polls.vms.items() if name in own}
            view.poll_version = max(filter(None, (view.poll_version, polls.version)), default=None)
            views.append(view)
        return views
