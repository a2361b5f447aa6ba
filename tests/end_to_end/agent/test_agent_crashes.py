"""Real agents in real processes, killed with SIGKILL at every write of their journal, and what the next one does."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.agent.single_event_service import SingleEventService

AGENT = Path(__file__).with_name("crashing_agent.py")
MAX_WRITES = 60


def test_a_whole_life_without_death(tmp_path: Path) -> None:
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
def test_wherever_an_agent_dies_the_next_one_leaves_nothing_prepared(tmp_path: Path, where: str) -> None:
    for write in range(1, 100):
        directory = tmp_path / str(write)
        directory.mkdir()
        with SingleEventService() as service:
            code = run_agent(directory, service, write=write, where=where)
            if code == 0:
                assert write > 5, "it should have died on the way"
                return
            assert code == -signal.SIGKILL
            # Where nothing is left to do, it may be told to stop before it listens to that.
            assert run_agent(directory, service, write=0, where=where) in {0, -signal.SIGTERM}
            check(diary(directory), service.approvals)
    raise AssertionError("it never lived to the end")


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
    """Run an agent until it dies, or until the event is gone and its journal empty."""
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
