"""The dependencies of an agent: their defaults."""

from pathlib import Path
from typing import cast

from forewarn.agent.context import AgentContext, EventClient
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.client import AsyncScheduledEvents
from forewarn.clock import SystemClock
from tests.agent.handlers.handler_contexts import EVENT


async def test_agent_approves_what_it_handles_and_has_no_peers_by_default() -> None:
    async with AsyncScheduledEvents("http://127.0.0.1:1") as client:
        context = AgentContext(
            client=cast("EventClient", client), handlers={}, choose=lambda _: (), state_directory=Path("/state")
        )
    assert context.may_approve(EVENT)
    assert (context.policy, context.peers, context.listen, context.dry_run) == (ApprovalPolicy(), None, None, False)
    assert (context.boot, type(context.clock)) == ("", SystemClock)
