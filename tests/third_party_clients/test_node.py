"""Node's http module and fetch, with every kind of connection handling."""

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from forewarn.core.event import EventType
from tests.support.emulator import GUARD, EmulatorProcess, Vm, plain_environment

NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None, reason="node is missing; to test with it as well, install it (Debian: apt-get install nodejs)"
)


class Answer(msgspec.Struct, frozen=True):
    """A response received by Node. `reused`: on a reused connection; unknown with fetch."""

    status: int
    body: str
    connection: str | None
    reused: bool | None


def run(programs: Path, url: str, how: str) -> list[Answer]:
    done = subprocess.run(
        [NODE or "node", str(programs / "node_client.js"), url, how],
        env=plain_environment(),
        check=False,
        capture_output=True,
        timeout=GUARD,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Answer])


@pytest.mark.parametrize("how", ["global", "keep", "close", "fetch"])
def test_node_polls_and_approves(service: EmulatorProcess, vm: Vm, programs: Path, how: str) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    before, approved, after = run(programs, vm.events(), how)
    assert [before.status, approved.status, after.status] == [200, 200, 200]
    assert approved.body == ""
    seen = [json.loads(answer.body)["Events"] for answer in (before, after)]
    assert [[(one["EventId"], one["EventStatus"]) for one in events] for events in seen] == [
        [(event, "Scheduled")],
        [(event, "Started")],
    ]
    assert service.statuses(vm) == {event: "Started"}


def test_keep_alive_agent_reuses_its_connection(vm: Vm, programs: Path) -> None:
    answers = run(programs, vm.events(), "keep")
    assert [answer.reused for answer in answers] == [False, True, True]


def test_connection_close_is_confirmed_each_time(vm: Vm, programs: Path) -> None:
    answers = run(programs, vm.events(), "close")
    assert [(answer.connection, answer.reused) for answer in answers] == [("close", False)] * 3
