"""An agent is killed with SIGKILL while a handler's program runs: the next agent deals with that program first."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.agent.single_agent import FOREWARN, SingleAgent, event, run_single_agent
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

HANDLER = """\
[handlers.slow]
kind = "exec"
prepare = ["{program}", "prepare"]
recover = ["{program}", "recover"]
time_limit = "1h"
{more}
"""

PROGRAM = """\
#!/bin/sh
# Each run waits for a file of its name, such as prepare-1. The last line is the state of the VM's service.
cd {home}
echo "$1 $FOREWARN_ATTEMPT begins" >>diary
echo $$ >"pid-$1-$FOREWARN_ATTEMPT"
while ! [ -e "$1-$FOREWARN_ATTEMPT" ]; do sleep 0.02; done
echo "$1 $FOREWARN_ATTEMPT ends" >>diary
"""


class SlowAgent:
    """An agent whose handler's programs wait for the test."""

    def __init__(self, agent: SingleAgent) -> None:
        self.agent = agent
        self.endpoint = agent.endpoint
        self._home = agent.home

    @property
    def diary(self) -> list[str]:
        path = self._home / "diary"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.diary, f"{line!r}; the agent's log: {self.agent.agent.output()}")

    def let_end(self, run: str) -> None:
        (self._home / run).touch()

    def kill(self) -> None:
        self.agent.agent.kill()

    def start(self) -> None:
        self.agent.agent.start()

    def status(self) -> dict[str, Any]:
        command = [str(FOREWARN), "agent", "status", "--config", str(self._home / "agent.toml"), "-o", "json"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode in {0, 1}, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def is_running(self, run: str) -> bool:
        pid = (self._home / f"pid-{run}").read_text().strip()
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


@contextmanager
def run_slow_agent(home: Path, more: str = "") -> Iterator[SlowAgent]:
    program = home / "slow"
    program.write_text(PROGRAM.format(home=home))
    program.chmod(0o755)
    with run_single_agent(home, more=HANDLER.format(program=program, more=more), handlers=("slow",)) as agent:
        try:
            yield SlowAgent(agent)
        finally:
            for path in home.glob("pid-*"):
                with suppress(OSError, ValueError):
                    os.killpg(int(path.read_text()), signal.SIGKILL)


def knows_of_earlier_agent(agent: SlowAgent) -> bool:
    return any("its agent has ended" in problem for problem in agent.status()["problems"])


def test_orphaned_prepare_is_awaited_before_it_is_repeated(tmp_path: Path) -> None:
    with run_slow_agent(tmp_path) as agent:
        agent.endpoint.announce(event("E"))
        agent.wait_for("prepare 1 begins")
        agent.kill()
        assert knows_of_earlier_agent(agent), "also while no agent runs"
        agent.start()
        wait_until(lambda: agent.status()["is_running"], "the next agent")
        wait_until(lambda: knows_of_earlier_agent(agent), "the program in the status")
        (walk,) = agent.status()["workflows"]
        assert walk["steps"][0]["prepare"] == "begun"
        agent.endpoint.wait_for_polls()
        assert agent.diary == ["prepare 1 begins"], "the next attempt waits"
        agent.let_end("prepare-2")
        agent.let_end("prepare-1")
        agent.endpoint.wait_until_approved("E")
        assert agent.diary == ["prepare 1 begins", "prepare 1 ends", "prepare 2 begins", "prepare 2 ends"]
        assert agent.status()["problems"] == []
        assert "of an earlier agent has ended" in agent.agent.agent.output()


def test_orphaned_prepare_is_ended_before_recovery(tmp_path: Path) -> None:
    with run_slow_agent(tmp_path) as agent:
        agent.endpoint.announce(event("E"))
        agent.wait_for("prepare 1 begins")
        agent.kill()
        agent.endpoint.announce(incarnation=3)
        agent.let_end("recover-1")
        agent.start()
        agent.wait_for("recover 1 ends")
        assert not agent.is_running("prepare-1")
        wait_until(lambda: agent.status()["workflows"] == [], "the end of the workflow")
        assert agent.diary == ["prepare 1 begins", "recover 1 begins", "recover 1 ends"]
        assert "ending prepare of slow" in agent.agent.agent.output()


def end_of_event(agent: SlowAgent, number: int = 1, id_: str = "E") -> None:
    """Prepare for the event and let it end, up to the start of recovery."""
    agent.let_end(f"prepare-{number}")
    agent.endpoint.announce(event(id_))
    agent.endpoint.wait_until_approved(id_)
    agent.endpoint.announce(incarnation=3)


def test_orphaned_recovery_is_awaited_and_repeated(tmp_path: Path) -> None:
    with run_slow_agent(tmp_path) as agent:
        end_of_event(agent)
        agent.wait_for("recover 1 begins")
        agent.kill()
        agent.start()
        wait_until(lambda: agent.status()["is_running"] and knows_of_earlier_agent(agent), "the program in the status")
        agent.let_end("recover-2")
        agent.let_end("recover-1")
        wait_until(lambda: agent.status()["workflows"] == [], "the end of the workflow")
        recovery = ["recover 1 begins", "recover 1 ends", "recover 2 begins", "recover 2 ends"]
        assert agent.diary == ["prepare 1 begins", "prepare 1 ends", *recovery]


@pytest.mark.parametrize("ends_before_restart", [True, False])
def test_recovery_at_most_once_is_unknown_after_a_kill_and_settled_by_the_next(
    tmp_path: Path, ends_before_restart: bool
) -> None:
    with run_slow_agent(tmp_path, 'recovery = "at-most-once"') as agent:
        end_of_event(agent)
        agent.wait_for("recover 1 begins")
        agent.kill()
        if ends_before_restart:
            agent.let_end("recover-1")
            wait_until(lambda: not agent.is_running("recover-1"), "the end of the program")
            agent.start()
        else:
            agent.start()
            wait_until(lambda: agent.status()["is_running"] and knows_of_earlier_agent(agent), "the program")
            agent.let_end("recover-1")

        def recoveries() -> list[str]:
            return [walk["steps"][0]["recover"] for walk in agent.status()["workflows"]]

        wait_until(lambda: recoveries() == ["unknown"], "the unknown end")
        agent.kill()
        agent.start()
        wait_until(lambda: agent.status()["is_running"], "the next agent")
        agent.endpoint.wait_for_polls()
        assert recoveries() == ["unknown"], "also after another restart"
        assert agent.diary.count("recover 1 begins") == 1
        assert "recover 2 begins" not in agent.diary
        end_of_event(agent, id_="LATER")
        wait_until(lambda: recoveries() == [], "the recovery of a later event")
        assert agent.diary.count("recover 1 ends") == 2, "one for each event"
