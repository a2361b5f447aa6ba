"""What an agent says of itself, and where to read it: from the agent while it runs, else from its journal."""

import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.agent.journal import read_page
from forewarn.agent.phases import Phase
from forewarn.agent.walk import Asked, State, Walk

SOCKET = "agent.sock"
JOURNAL = "journal"
PATH = "/v1/status"
PATIENCE = 5.0
LARGEST = 4 * 1024 * 1024


class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far one handler is with one event."""

    handler: str
    importance: int
    prepare: State
    prepare_attempt: int
    prepare_why: str
    recover: State
    recover_attempt: int
    recover_why: str


class WalkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the agent is with one event."""

    event: str
    type: str
    status: str
    resources: tuple[str, ...]
    not_before: datetime | None
    phase: Phase
    is_ready: bool
    approval: Asked
    approval_why: str
    restarts: int
    steps: tuple[StepStatus, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about an agent that a person may want to know."""

    is_running: bool
    name: str | None = None
    endpoint: str | None = None
    started_at: datetime | None = None
    troubles: tuple[str, ...] = ()
    """What is wrong now, a sentence each."""
    walks: tuple[WalkStatus, ...] = ()


def show_walks(walks: Iterable[Walk]) -> tuple[WalkStatus, ...]:
    """Show the walks, the oldest first."""
    return tuple(_show(walk) for walk in sorted(walks, key=lambda walk: walk.noticed_at))


def read_status(state_directory: Path) -> Status:
    """Ask the agent of a state directory; where none answers, tell what it left in its journal.

    Raises PermissionError if the directory may not be read.
    """
    with suppress(OSError, ValueError):
        return _ask(state_directory / SOCKET)
    walks: list[Walk] = []
    troubles: list[str] = []
    for path in _pages(state_directory / JOURNAL):
        try:
            walks.append(read_page(path))
        except (OSError, ValueError) as error:
            troubles.append(f"{path.name} in the journal is unreadable: {error}")
    return Status(is_running=False, troubles=tuple(troubles), walks=show_walks(walks))


def _pages(journal: Path) -> list[Path]:
    try:
        return sorted(path for path in journal.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []


def _ask(path: Path) -> Status:
    if sys.platform == "win32":
        raise OSError("this system has no such sockets")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(PATIENCE)
        line.connect(str(path))
        line.sendall(f"GET {PATH} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
        text = b""
        while chunk := line.recv(65536):
            text += chunk
            if len(text) > LARGEST:
                raise ValueError("the answer is too long")
    head, _, body = text.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError("no agent answers here")
    return msgspec.json.decode(body, type=Status)


def _show(walk: Walk) -> WalkStatus:
    event = walk.event
    steps = tuple(
        StepStatus(
            handler=step.handler,
            importance=step.importance,
            prepare=step.prepare.state,
            prepare_attempt=step.prepare.attempt,
            prepare_why=step.prepare.why,
            recover=step.recover.state,
            recover_attempt=step.recover.attempt,
            recover_why=step.recover.why,
        )
        for step in walk.steps
    )
    return WalkStatus(
        event=event.id,
        type=str(event.type),
        status=str(event.status) if walk.gone is None else walk.gone.value,
        resources=event.resources,
        not_before=event.not_before,
        phase=walk.phase,
        is_ready=walk.is_ready,
        approval=walk.approval.asked,
        approval_why=walk.approval.why,
        restarts=walk.restarts,
        steps=steps,
    )
