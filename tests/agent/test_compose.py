"""The agent's composition root: the approval policy, and the modules that an agent loads."""

import subprocess
import sys
from datetime import timedelta

import pytest

from forewarn.agent.compose import approval_policy
from forewarn.agent.settings import ApprovalSettings, PeersSettings
from forewarn.agent.workflow.approval import ApprovalPolicy

NOT_NEEDED_AT_REST = ("apprise", "click", "csv", "difflib", "hashlib", "rich", "shutil", "tempfile")


@pytest.mark.process
def test_idle_agent_has_loaded_only_what_it_needs() -> None:
    """Every virtual machine pays for the memory of its agent."""
    code = "import sys; from forewarn.agent import compose, daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    assert "forewarn.agent.handlers.haproxy" in loaded.stdout.split()
    assert not set(NOT_NEEDED_AT_REST) & set(loaded.stdout.split())


def test_short_freeze_can_be_switched_off() -> None:
    policy = approval_policy(ApprovalSettings(short_freeze=None), PeersSettings())
    assert policy == ApprovalPolicy(short_freeze=timedelta(0))
