"""Status of the agent: from the running agent over its Unix socket, else from the workflow files in its state
directory.
"""

import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.agent.handlers.programs import DIRECTORY, OrphanProgram, find_orphans
from forewarn.agent.phases import Phase
from forewarn.agent.workflow.state import ApprovalState, CallState, EventWorkflow
from forewarn.agent.workflow.store import read_workflow

SOCKET = "agent.sock"
JOURNAL = "journal"
PATH = "/v1/status"
TIMEOUT = 5.0
LARGEST = 4 * 1024 * 1024


class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one handler's step in a workflow."""

    handler: str
    importance: int
    prepare: CallState
    prepare_attempt: int
    prepare_reason: str = msgspec.field(name="prepare_why")
    recover: CallState
    recover_attempt: int
    recover_reason: str = msgspec.field(name="recover_why")


class WorkflowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the workflow of one event."""

    event: str
    type: str
    status: str
    resources: tuple[str, ...]
    not_before: datetime | None
    phase: Phase
    is_ready: bool
    approval: ApprovalState
    approval_reason: str = msgspec.field(name="approval_why")
    restarts: int
    steps: tuple[StepStatus, ...]


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the agent, as `agent status` shows it."""

    is_running: bool
    name: str | None = None
    endpoint: str | None = None
    started_at: datetime | None = None
    problems: tuple[str, ...] = msgspec.field(default=(), name="troubles")
    """Current problems, one sentence each."""
    workflows: tuple[WorkflowStatus, ...] = msgspec.field(default=(), name="walks")


def workflow_statuses(workflows: Iterable[EventWorkflow]) -> tuple[WorkflowStatus, ...]:
    """Return the status of each workflow, the oldest first."""
    return tuple(_workflow_status(workflow) for workflow in sorted(workflows, key=lambda workflow: workflow.noticed_at))


def orphan_problems(programs: Iterable[OrphanProgram]) -> list[str]:
    """Return a sentence about each program of an agent that has ended."""
    return [
        f"{each.note} for event {each.note.event} is still running, but its agent has ended; "
        f"it is ended at {each.note.until.isoformat(timespec='seconds')}"
        for each in programs
    ]


def read_status(state_directory: Path) -> AgentStatus:
    """Ask the running agent of a state directory; if none answers, read its stored workflows.

    Raises PermissionError if the directory is not readable.
    """
    with suppress(OSError, ValueError):
        return _query_agent(state_directory / SOCKET)
    workflows: list[EventWorkflow] = []
    troubles: list[str] = []
    for path in _workflow_files(state_directory / JOURNAL):
        try:
            workflows.append(read_workflow(path))
        except (OSError, ValueError) as error:
            troubles.append(f"cannot read workflow file {path.name}: {error}")
    troubles += orphan_problems(find_orphans(state_directory / DIRECTORY))
    return AgentStatus(is_running=False, problems=tuple(troubles), workflows=workflow_statuses(workflows))


def _workflow_files(journal: Path) -> list[Path]:
    try:
        return sorted(path for path in journal.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []


def _query_agent(path: Path) -> AgentStatus:
    if sys.platform == "win32":
        raise OSError("this system has no Unix sockets")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect(str(path))
        sock.sendall(f"GET {PATH} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
        text = b""
        while chunk := sock.recv(65536):
            text += chunk
            if len(text) > LARGEST:
                raise ValueError(f"response exceeds {LARGEST} bytes")
    head, _, body = text.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError("not an agent's response")
    return msgspec.json.decode(body, type=AgentStatus)


def _workflow_status(workflow: EventWorkflow) -> WorkflowStatus:
    event = workflow.event
    steps = tuple(
        StepStatus(
            handler=step.handler,
            importance=step.importance,
            prepare=step.prepare.state,
            prepare_attempt=step.prepare.attempt,
            prepare_reason=step.prepare.reason,
            recover=step.recover.state,
            recover_attempt=step.recover.attempt,
            recover_reason=step.recover.reason,
        )
        for step in workflow.steps
    )
    return WorkflowStatus(
        event=event.id,
        type=str(event.type),
        status=str(event.status) if workflow.ending is None else workflow.ending.value,
        resources=event.resources,
        not_before=event.not_before,
        phase=workflow.phase,
        is_ready=workflow.is_ready,
        approval=workflow.approval.state,
        approval_reason=workflow.approval.reason,
        restarts=workflow.restarts,
        steps=steps,
    )
