"""From settings to an agent that can run: the only place that puts its parts together."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from forewarn.agent.approving import Policy
from forewarn.agent.choosing import choose
from forewarn.agent.equipment import Equipment
from forewarn.agent.handlers.making import make_handlers
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.handlers.secret_files import Hide, UnusableSecret, read_secret, unhidden
from forewarn.agent.handlers.secret_files import problems_of as secret_problems
from forewarn.agent.peers import Peers
from forewarn.agent.settings import AgentSettings, ApprovalSettings, PeersSettings
from forewarn.client.awaiting import AsyncScheduledEvents

NEVER_SHORT = timedelta(0)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CannotRun(Exception):
    """The settings are good, but this machine does not allow what they say; the message says what to do."""


@asynccontextmanager
async def equipped(
    settings: AgentSettings, *, hide: Hide, environ: Mapping[str, str] = os.environ, dry_run: bool = False
) -> AsyncIterator[Equipment]:
    """Make everything that an agent works with; listeners for load balancers answer within this context."""
    handlers = make_handlers(settings, hide=hide, environ=environ)
    async with AsyncExitStack() as stack:
        for handler in handlers.values():
            if isinstance(handler, ReadinessHandler):
                await stack.enter_async_context(handler.serving())
        client = await stack.enter_async_context(
            AsyncScheduledEvents(settings.endpoint, name=settings.name, interval=settings.interval.total_seconds())
        )
        yield Equipment(
            client=client,
            handlers=handlers,
            choose=lambda event: choose(settings, event).handlers,
            may_approve=lambda event: choose(settings, event).rule is not None,
            state_directory=settings.state,
            policy=policy_of(settings.approval, settings.peers),
            peers=peers_of(settings.peers, hide),
            listen=settings.http.listen,
            boot=this_boot(),
            dry_run=dry_run,
        )


def policy_of(approval: ApprovalSettings, peers: PeersSettings) -> Policy:
    """Say it in the words of the rules."""
    return Policy(
        by=approval.policy,
        user_events_at_once=approval.user_events_at_once,
        short_freeze=NEVER_SHORT if approval.short_freeze is None else approval.short_freeze,
        deputy_after=approval.deputy_after,
        ask_every=peers.ask_every,
    )


def peers_of(settings: PeersSettings, hide: Hide) -> Peers | None:
    """Return who can be asked; an agent that asks nobody still answers those who know the secret."""
    if settings.secret_file is None:
        return None
    try:
        return Peers(
            addresses=dict(settings.agents),
            secret=read_secret(settings.secret_file, hide).encode(),
            timeout=settings.time_limit,
        )
    except (UnusableSecret, ValueError) as error:
        raise CannotRun(f"{settings.secret_file}: {error}" if isinstance(error, ValueError) else str(error)) from None


def this_boot(file: Path = BOOT_ID) -> str:
    """Return what Linux calls this boot of the machine; nothing where it does not say."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def problems_of(settings: AgentSettings) -> list[str]:
    """Return what would keep the agent itself from running as it is set up. Changes nothing."""
    problems = [] if settings.peers.secret_file is None else secret_problems(settings.peers.secret_file)
    if not problems:
        try:
            peers_of(settings.peers, unhidden)
        except CannotRun as error:
            problems.append(str(error))
    there = next(path for path in (settings.state, *settings.state.absolute().parents) if os.path.exists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problems.append(f"state: {settings.state} cannot be made or written to by this user")
    return problems
