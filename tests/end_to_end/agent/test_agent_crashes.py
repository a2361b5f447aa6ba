"""An agent process is killed with SIGKILL at each write of its workflow store; its successor continues the workflow."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.agent.single_event_service import SingleEventService

AGENT = Path(__file__).with_name("crashing_agent.py")
MAX_WRITES = 60


def test_workflow_without_a_crash(tmp_path: Path) -> None:
    with SingleEventService() as service:
        code = run_agent(tmp_path, service, write=0, where="before")
        assert (code, service.approvals) == (0, 1)
    assert diary(tmp_path) == [
        f"{name} {call} 1 {what}"
        for call, names in (("prepare", ("drain", "stop")), ("recover", ("stop", "drain")))
        for name in names
        for what in ("begins", "ends")
    ]


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_restarted_agent_recovers_everything_prepared(tmp_path: Path, where: str) -> None:
    for write in range(1, 100):
        directory = tmp_path / str(write)
        directory.mkdir()
        with SingleEventService() as service:
            code = run_agent(directory, service, write=write, where=where)
            if code == 0:
                assert write > 5, "the agent should have crashed"
                return
            assert code == -signal.SIGKILL
            # With no work left, it may get SIGTERM before it has installed its signal handler.
            assert run_agent(directory, service, write=0, where=where) in {0, -signal.SIGTERM}
            check(diary(directory), service.approvals)
    raise AssertionError("the agent crashed at every write")


def check(lines: list[str], approvals: int) -> None:
    assert 1 <= approvals <= 2
    notes = [line.split() for line in lines]
    for handler in ("drain", "stop"):
        own = [note for note in notes if note[0] == handler]
        for call in ("prepare", "recover"):
            attempts = [int(note[2]) for note in own if note[1] == call and note[3] == "begins"]
            assert attempts == sorted(set(attempts)), lines
            assert len(attempts) <= 2, lines
        assert own[-1][1:] == ["recover", own[-1][2], "ends"], lines


def run_agent(directory: Path, service: SingleEventService, *, write: int, where: str) -> int:
    """Run an agent until it crashes, or until the event is gone and its store is empty."""
    arguments: list[str | Path] = [service.endpoint, directory / "state", directory / "diary", str(write), where]
    with subprocess.Popen([sys.executable, AGENT, *arguments], stderr=subprocess.PIPE, text=True) as agent:
        give_up_at = time.monotonic() + MAX_WRITES
        while agent.poll() is None and not is_over(directory, service):
            if time.monotonic() > give_up_at:
                agent.kill()
                raise AssertionError(f"it hangs: {agent.communicate()[1]}")
            time.sleep(0.01)
        agent.terminate()
        agent.communicate(timeout=MAX_WRITES)
        return agent.returncode


def is_over(directory: Path, service: SingleEventService) -> bool:
    return service.state == "gone" and not list((directory / "state" / "journal").glob("*.json"))


def diary(directory: Path) -> list[str]:
    return (directory / "diary").read_text().splitlines()
