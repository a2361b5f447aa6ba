"""Agents go on from the state that agents of commit 450409b have left: nothing is prepared twice, all is recovered."""

import json
import shutil
from pathlib import Path
from zlib import crc32

import pytest

from forewarn.api import v1
from forewarn.core.scope import EventOutcome
from tests.stored.history import agent_directory
from tests.stored.records import STORED, copy
from tests.stored.service_process import Service, agent, ask_as, wait_for

KNOWN: dict[str, str] = json.loads((STORED / "known.json").read_text())
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@pytest.fixture
def service(tmp_path: Path) -> Service:
    copy(tmp_path)
    return Service(tmp_path)


def stored_agent(directory: Path, name: str) -> Path:
    """Copy the state of an agent as if it had been left since the last boot of this machine."""
    target = agent_directory(directory / "agents" / name)
    shutil.copytree(STORED / "agents" / name / "state", target / "state")
    for path in (target / "state/journal").iterdir():
        path.write_bytes(rebooted(path.read_bytes()))
    return target


def rebooted(page: bytes) -> bytes:
    """Return a page of the journal with the id of this boot: after another one everything is prepared again."""
    walk = page.partition(b'"walk":')[2][:-1]
    boot = json.loads(walk)["course"]["boot"]
    walk = walk.replace(boot.encode(), BOOT_ID.read_text().strip().encode())
    return b'{"format":1,"sum":%d,"walk":%s}' % (crc32(walk), walk)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def journal(directory: Path) -> list[Path]:
    return list((directory / "state/journal").glob("*.json"))


def test_agent_in_the_middle_of_prepare_finishes_approves_and_recovers(service: Service, tmp_path: Path) -> None:
    directory, event = stored_agent(tmp_path, "prepare"), KNOWN["agent-prepare"]
    with service.running() as api, agent(directory, str(api.vm("agent-prepare").guest_url)):
        wait_for(lambda: (detail := api.event(event)).event is None or detail.event.approvals)
        assert lines(directory / "halves") == ["running prepare", "waiting prepare"]
        assert lines(directory / "systemctl-calls") == []
        api.release(v1.ReleaseHold())
        wait_for(lambda: api.event(event).outcome is EventOutcome.COMPLETED)
        wait_for(lambda: not journal(directory))
    assert lines(directory / "halves") == [
        "running prepare",
        "waiting prepare",
        "waiting recover",
        "running recover",
        "done recover",
    ]
    (call,) = lines(directory / "systemctl-calls")
    assert call.endswith("start nginx.service")


def test_agent_that_waits_with_its_approval_goes_on_waiting(service: Service, tmp_path: Path) -> None:
    directory, event = stored_agent(tmp_path, "approve"), KNOWN["agent-approve"]
    with service.running() as api:
        with agent(directory, str(api.vm("second").guest_url)):
            wait_for(lambda: any(b'"restarts":1' in path.read_bytes() for path in journal(directory)))
            api.release(v1.ReleaseHold())
            ask_as(api.vm("first").guest_url, b'{"StartRequests":[{"EventId":"%s"}]}' % event.encode())
            wait_for(lambda: not journal(directory))
        approved = [entry.actor for entry in api.event(event).journal if entry.action.value == "approved"]
    assert approved == ["vm:first"]
    assert lines(directory / "halves") == ["waiting recover", "running recover", "done recover"]


def test_agent_in_the_middle_of_recover_finishes(service: Service, tmp_path: Path) -> None:
    directory = stored_agent(tmp_path, "recover")
    with service.running() as api:
        wait_for(lambda: api.event(KNOWN["agent-recover"]).outcome is EventOutcome.COMPLETED)
        with agent(directory, str(api.vm("agent-recover").guest_url)):
            wait_for(lambda: not journal(directory))
    assert lines(directory / "halves") == ["running recover", "done recover"]
    (call,) = lines(directory / "systemctl-calls")
    assert call.endswith("start nginx.service")
