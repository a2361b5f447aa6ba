"""The agent's composition root: the approval policy, and the modules that an agent loads."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.compose import open_context
from forewarn.agent.handlers.secret_files import hide_nothing
from forewarn.agent.settings import AgentSettings, ApprovalMode, ApprovalSettings, PeersSettings
from forewarn.agent.workflow.approval import ApprovalPolicy

NOT_NEEDED_AT_REST = ("apprise", "click", "csv", "difflib", "hashlib", "rich", "shutil", "tempfile")


@pytest.mark.process
def test_idle_agent_has_loaded_only_what_it_needs() -> None:
    """Every virtual machine pays for the memory of its agent."""
    code = "import sys; from forewarn.agent import compose, daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    assert "forewarn.agent.handlers.haproxy" in loaded.stdout.split()
    assert not set(NOT_NEEDED_AT_REST) & set(loaded.stdout.split())


async def test_approval_follows_the_settings(tmp_path: Path) -> None:
    settings = AgentSettings(
        endpoint="http://127.0.0.1:1",
        state=tmp_path,
        approval=ApprovalSettings(policy=ApprovalMode.EACH, short_freeze=None, user_events_at_once=False),
        peers=PeersSettings(ask_every=timedelta(seconds=1)),
    )
    async with open_context(settings, hide=hide_nothing) as context:
        assert context.policy == ApprovalPolicy(settings=settings.approval, ask_every=timedelta(seconds=1))
