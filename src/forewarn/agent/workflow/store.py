"""Workflow store on disk: one checksummed file per event, written atomically before any action.

After an I/O error such as a full disk, the agent continues in memory, reports the error, and writes the missing files
as soon as the disk works again.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from forewarn import files
from forewarn.agent.workflow.state import EventWorkflow, WorkflowState
from forewarn.client.document import STATUSES, Event
from forewarn.wire.document_parser import SOURCES, TYPES

FORMAT = 1
LARGEST = 64 * 1024 * 1024
"""Maximum size of a workflow file, far above any real event: a larger file is not read."""

PLAIN_ID = re.compile(r"[0-9A-Z][0-9A-Z-]{0,63}")
"""Event ids that are safe as file names; other ids are hashed."""

LOG = logging.getLogger(__name__)


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the service sent it. Types, statuses and sources are plain strings, so unknown ones are kept."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: datetime | None
    description: str | None
    source: str | None
    duration: timedelta | None
    resource_type: str


class WorkflowFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a workflow file with its CRC-32, so that a damaged file is detected."""

    format: int
    sum: int
    workflow: msgspec.Raw = msgspec.field(name="walk")


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is stored."""

    event: StoredEvent
    reannounced: StoredEvent | None = msgspec.field(name="comeback")
    state: WorkflowState = msgspec.field(name="course")


class WorkflowStore:
    """Stores workflows in a directory, or only in memory. No method raises on disk errors."""

    def __init__(self, directory: Path | None, *, on_error: Callable[[str], None] | None = None) -> None:
        self._directory = directory
        self._on_error = on_error or (lambda _: None)
        self._unsaved: dict[str, EventWorkflow | None] = {}
        self.has_error = asyncio.Event()
        """Set while a change could not be written to disk."""
        self.unreadable: list[str] = []
        """Messages about files that could not be read."""
        self.error: str | None = None
        """Why the last write failed; None if everything is on disk."""

    def load(self) -> tuple[EventWorkflow, ...]:
        """Return all workflows. An unreadable file is renamed, so that an operator can inspect it."""
        if self._directory is None:
            return ()
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = sorted(self._directory.iterdir())
        except OSError as error:
            self._report_unreadable(
                f"cannot read the workflow files: {_error_text(error)}; check whether something is still prepared"
            )
            return ()
        for path in paths:
            if path.suffix == files.TEMPORARY_SUFFIX:
                with suppress(OSError):
                    path.unlink()
        workflows = (self._read(path) for path in paths if path.suffix == ".json")
        return tuple(workflow for workflow in workflows if workflow is not None)

    def save(self, workflow: EventWorkflow) -> None:
        """Save the workflow; after an error, `flush` retries."""
        self._unsaved[workflow.id] = workflow
        self.flush()

    def delete(self, id_: str) -> None:
        """Delete the workflow from the disk."""
        self._unsaved[id_] = None
        self.flush()

    def flush(self) -> None:
        """Write all changes that are not on disk yet."""
        reason: str | None = None
        for id_, workflow in list(self._unsaved.items()):
            try:
                self._write(id_, workflow)
                del self._unsaved[id_]
            except (OSError, ValueError) as error:
                reason = _error_text(error)
        if reason is not None:
            self._report_error(
                f"cannot write the workflow files: {reason}; progress is only in memory until this works"
            )
        elif self.error is not None:
            self.error = None
            self.has_error.clear()
            LOG.warning("all workflow files are on disk again")

    def _write(self, id_: str, workflow: EventWorkflow | None) -> None:
        if self._directory is None:
            return
        path = self._directory / f"{file_name(id_)}.json"
        if workflow is None:
            files.remove_file(path)
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_file(path, encode_workflow(workflow))

    def _read(self, path: Path) -> EventWorkflow | None:
        try:
            return read_workflow(path)
        except (OSError, ValueError) as error:
            # The file may have been the only record that something is prepared.
            where = self._move_aside(path)
            self._report_unreadable(
                f"cannot read workflow file {path.name} ({error}){where}; check whether something is still prepared"
            )
            return None

    def _move_aside(self, path: Path) -> str:
        for name in _unreadable_names(path):
            if not name.exists():
                with suppress(OSError):
                    files.move(path, name)
                return f", renamed to {name.name}" if name.exists() else ""
        return ""

    def _report_unreadable(self, message: str) -> None:
        self.unreadable.append(message)
        LOG.error("%s", message)
        self._on_error(message)

    def _report_error(self, message: str) -> None:
        if message != self.error:
            LOG.error("%s", message)
        self.error = message
        self.has_error.set()
        self._on_error(message)


def read_workflow(path: Path) -> EventWorkflow:
    """Read a workflow file. Raises OSError or ValueError."""
    return decode_workflow(files.read_file(path, LARGEST))


def decode_workflow(text: bytes) -> EventWorkflow:
    """Decode the content of a workflow file. Raises ValueError."""
    try:
        file = msgspec.json.decode(text, type=WorkflowFile)
        if file.format != FORMAT:
            raise ValueError(f"unknown format {file.format}; this agent reads format {FORMAT}")
        if crc32(file.workflow) != file.sum:
            raise ValueError("damaged: wrong checksum")
        stored = msgspec.json.decode(file.workflow, type=StoredWorkflow)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    reannounced = None if stored.reannounced is None else _event(stored.reannounced)
    return EventWorkflow(event=_event(stored.event), reannounced=reannounced, **_fields(stored.state, WorkflowState))


def encode_workflow(workflow: EventWorkflow) -> bytes:
    """Encode the content of a workflow file."""
    reannounced = None if workflow.reannounced is None else _stored_event(workflow.reannounced)
    state = WorkflowState(**_fields(workflow, WorkflowState))
    stored = msgspec.json.encode(
        StoredWorkflow(event=_stored_event(workflow.event), reannounced=reannounced, state=state)
    )
    return msgspec.json.encode(WorkflowFile(format=FORMAT, sum=crc32(stored), workflow=msgspec.Raw(stored)))


def _stored_event(event: Event) -> StoredEvent:
    return StoredEvent(**_fields(event, StoredEvent))


def _event(stored: StoredEvent) -> Event:
    return Event(
        **_fields(stored, StoredEvent)
        | {
            "status": STATUSES.get(stored.status, stored.status),
            "type": TYPES.get(stored.type, stored.type),
            "source": None if stored.source is None else SOURCES.get(stored.source, stored.source),
        }
    )


def _fields(value: msgspec.Struct, type_: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type_.__struct_fields__}


def file_name(id_: str) -> str:
    """Return the file name for an event id: the id itself if it is safe, else its hash."""
    if PLAIN_ID.fullmatch(id_):
        return id_
    import hashlib  # late: an idle agent does not need it

    return "sha256-" + hashlib.sha256(id_.encode(errors="surrogatepass")).hexdigest()


def _unreadable_names(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}.unreadable-{number}") for number in range(1, 1000))


def _error_text(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
