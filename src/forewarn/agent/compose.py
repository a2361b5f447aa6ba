"""Composition root of the agent: builds its context from the settings, and checks that it can start."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from forewarn.agent.context import AgentContext
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.handlers.registry import create_handlers
from forewarn.agent.handlers.secret_files import Hide, InvalidSecret, hide_nothing, read_secret
from forewarn.agent.handlers.secret_files import check_secret_file as secret_problems
from forewarn.agent.lock import STATE_NAMES
from forewarn.agent.peers import Peers
from forewarn.agent.rules import choose_handlers
from forewarn.agent.settings import AgentSettings, PeersSettings
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.client.aio import AsyncScheduledEvents
from forewarn.core.base_error import BaseError
from forewarn.files import UnsafeDirectory, check_directory
from forewarn.process import boot_id


class AgentStartFailed(BaseError):
    """The settings are valid, but the agent cannot start with them on this machine. The message says what to do."""

    template = "{problem}"
    problem: str


@asynccontextmanager
async def open_context(
    settings: AgentSettings, *, hide: Hide, environ: Mapping[str, str] = os.environ, dry_run: bool = False
) -> AsyncIterator[AgentContext]:
    """Create the dependencies of an agent. Readiness listeners answer probes while the context is open."""
    handlers = create_handlers(settings, hide=hide, environ=environ)
    async with AsyncExitStack() as stack:
        for handler in handlers.values():
            if isinstance(handler, ReadinessHandler):
                await stack.enter_async_context(handler.serve())
        client = await stack.enter_async_context(
            AsyncScheduledEvents(settings.endpoint, name=settings.name, interval=settings.interval.total_seconds())
        )
        yield AgentContext(
            client=client,
            handlers=handlers,
            choose=lambda event: choose_handlers(settings, event).handlers,
            may_approve=lambda event: choose_handlers(settings, event).rule is not None,
            state_directory=settings.state,
            policy=ApprovalPolicy(settings=settings.approval, ask_every=settings.peers.ask_every),
            peers=load_peers(settings.peers, hide),
            listen=settings.http.listen,
            boot=boot_id(),
            dry_run=dry_run,
        )


def load_peers(settings: PeersSettings, hide: Hide) -> Peers | None:
    """Return the configured peers, or None without a secret file. An agent without addresses still answers peers."""
    if settings.secret_file is None:
        return None
    try:
        return Peers(
            addresses=dict(settings.agents),
            secret=read_secret(settings.secret_file, hide).encode(),
            timeout=settings.time_limit,
        )
    except (InvalidSecret, ValueError) as error:
        raise AgentStartFailed(
            f"{settings.secret_file}: {error}" if isinstance(error, ValueError) else str(error)
        ) from None


def check_agent(settings: AgentSettings) -> list[str]:
    """Return the problems that would keep the agent from running with these settings. Changes nothing."""
    problems = [] if settings.peers.secret_file is None else secret_problems(settings.peers.secret_file)
    if not problems:
        try:
            load_peers(settings.peers, hide_nothing)
        except AgentStartFailed as error:
            problems.append(str(error))
    there = next(path for path in (settings.state, *settings.state.absolute().parents) if os.path.exists(path))
    if there == settings.state:
        try:
            check_directory(there, STATE_NAMES)
        except UnsafeDirectory as error:
            problems.append(f"state: {error}")
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problems.append(f"state: this user cannot create or write {settings.state}")
    return problems
