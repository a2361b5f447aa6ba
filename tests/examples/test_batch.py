"""The batch example: an evicted job saves a checkpoint and resumes on another VM."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.examples.example_settings import EXAMPLES, example_settings
from tests.examples.service_with_agents import ServiceWithAgents, run_service_with_agents
from tests.support.processes import GUARD, wait_until

pytestmark = pytest.mark.process

CONTROL = EXAMPLES / "batch/job-control"
FLEET = """\
[[scopes]]
name = "batch"
kind = "placement-group"
scale_set = "batch"
priority = "low"
vms = [{ count = 2 }]
"""

STEPS = 200
FOR_EVER = "60"
"""Pause between steps in seconds, so long that the job outlasts every test."""


class Worker:
    """The worker of one VM."""

    def __init__(self, vm: str, shared: Path, home: Path, pause: str) -> None:
        self.pid = home / f"{vm}.pid"
        self._shared = shared
        self._vm = vm
        self.environ = {
            "JOB_DIRECTORY": str(shared),
            "JOB_PID": str(self.pid),
            "JOB_STEPS": str(STEPS),
            "JOB_PAUSE": pause,
        }

    def control(self, word: str) -> None:
        """Run a control command of the worker, as the agent does."""
        environ = {**os.environ, **self.environ, "FOREWARN_NAME": self._vm}
        subprocess.run([CONTROL, word], env=environ, check=True, timeout=GUARD)

    def wait_for_progress(self) -> None:
        """Wait until this worker runs the job and has made progress."""
        progress = self._shared / "progress.json"
        wait_until(lambda: progress.exists() and load(progress)["worker"] == self._vm, f"progress of {self._vm}")


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def digest_without_interruption() -> str:
    """Run the job without interruption."""
    digest = ""
    for step in range(STEPS):
        digest = hashlib.sha256(f"{digest} {step}".encode()).hexdigest()
    return digest


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The directory that all workers share."""
    directory = tmp_path / "shared"
    directory.mkdir()
    return directory


@pytest.fixture
def slow(tmp_path: Path, shared: Path) -> Iterator[Worker]:
    worker = Worker("batch_0", shared, tmp_path, FOR_EVER)
    yield worker
    worker.control("stop")


@pytest.fixture
def quick(tmp_path: Path, shared: Path) -> Iterator[Worker]:
    worker = Worker("batch_1", shared, tmp_path, "0")
    yield worker
    worker.control("stop")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceWithAgents]:
    with run_service_with_agents(tmp_path, FLEET) as made:
        yield made


@pytest.fixture
def settings() -> str:
    return example_settings("batch", {"/etc/forewarn/job-control": str(CONTROL)})


def test_job_resumes_on_another_vm_after_preemption(
    service: ServiceWithAgents, settings: str, slow: Worker, quick: Worker, shared: Path
) -> None:
    slow.control("start")
    slow.wait_for_progress()
    quick.control("start")
    with service.agent("batch/batch_0", settings, **slow.environ):
        event = service.schedule(EventType.PREEMPT, "batch/batch_0")
        service.wait_for(EntryKind.STARTED, event)
        assert EntryKind.APPROVED in service.journal_kinds(event)
        assert not slow.pid.exists()
        wait_until((shared / "result.json").exists, "the result")
    result = load(shared / "result.json")
    first, second = result["done"]
    assert result["digest"] == digest_without_interruption()
    assert (first["worker"], second["worker"]) == ("batch_0", "batch_1")
    assert 0 == first["from"] < first["to"] == second["from"] < second["to"] == STEPS


def test_job_resumes_when_the_eviction_is_cancelled(service: ServiceWithAgents, settings: str, slow: Worker) -> None:
    slow.control("start")
    slow.wait_for_progress()
    policy = '[approval]\npolicy = "never"\n'
    with service.agent("batch/batch_0", f"{policy}\n{settings}", **slow.environ):
        event = service.schedule(EventType.PREEMPT, "batch/batch_0")
        wait_until(lambda: not slow.pid.exists(), "the worker to stop")
        service.cancel(event)
        wait_until(slow.pid.exists, "the worker to run again")


def test_worker_is_stopped_and_started_once_per_event(slow: Worker, shared: Path) -> None:
    slow.control("stop")
    slow.control("start")
    slow.wait_for_progress()
    pid = slow.pid.read_text()
    slow.control("start")
    assert slow.pid.read_text() == pid
    slow.control("stop")
    slow.control("stop")
    assert not slow.pid.exists()
    checkpoint = load(shared / "checkpoint.json")
    assert [done["worker"] for done in checkpoint["done"]] == ["batch_0"]
