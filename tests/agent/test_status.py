"""The status of an agent: from the running agent, else from its workflow files."""

import asyncio
from pathlib import Path

import msgspec

from forewarn.agent.status import AgentStatus, read_status
from tests.agent.harness import ID, AgentHarness, FakeService, RecordingHandler, event, until


async def test_status_comes_from_the_running_agent_or_its_files(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, FakeService(event()), [RecordingHandler("drain", [])])
    async with harness.run_agent() as agent:
        await until((tmp_path / "agent.sock").exists)
        running = await asyncio.to_thread(read_status, tmp_path)
        assert running == agent.status()
        assert (running.is_running, running.name, running.workflows[0].event) == (True, "web_0", ID)
    left = read_status(tmp_path)
    assert (left.is_running, left.workflows) == (False, running.workflows)
    (tmp_path / "journal" / "X.json").write_text("garbage")
    assert "cannot read workflow file X.json" in read_status(tmp_path).problems[0]


def test_status_of_a_missing_directory_is_empty(tmp_path: Path) -> None:
    assert read_status(tmp_path / "nowhere") == AgentStatus(is_running=False)
    assert msgspec.json.decode(msgspec.json.encode(AgentStatus(is_running=False)), type=AgentStatus) == AgentStatus(
        is_running=False
    )
