"""The stream of a cell: creates and checks it, reads single messages from its leader, and purges the journal."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
from nats.errors import MaxPayloadError

from forewarn.store.nats.connection import (
    ApiRefused,
    NatsConnection,
    NatsError,
    ServerUnavailable,
    parse_answer,
)
from forewarn.store.nats.message import (
    EXPECTED,
    EXPECTED_SUBJECT,
    FORMAT,
    FORMAT_HEADER,
    ROLLUP,
    TTL,
    CellSubjects,
    Message,
    StoredMessage,
    check_format,
)
from forewarn.store.port import (
    RecordKey,
    RecordKind,
    StoreCorrupt,
    StoreError,
    StoreMissing,
    StoreReverted,
    StoreUnavailable,
)

CELL_KEY = RecordKey(RecordKind.FLEET, "cell")
"""The record with the random id of the cell. It belongs to the store, and is hidden from its users."""

REPAIRED = (
    "subjects",
    "max_msgs_per_subject",
    "allow_atomic",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_direct",
    "deny_delete",
    "deny_purge",
)
"""The settings of a stream that `forewarn cluster upgrade` corrects."""

NO_MESSAGE, NO_STREAM, WRONG_SEQUENCE = 10037, 10059, 10071
"""Reasons of JetStream: no message found, stream not found, not at the expected sequence."""

MIN_VERSION = (2, 12)
"""The first version of the server with atomic batches."""


class InvalidServer(StoreError):
    """The server has no atomic batches."""

    template = "the NATS server has version {version}, but Forewarn needs at least 2.12: upgrade all servers"
    version: str


class StreamState(NamedTuple):
    """A stream at one moment, as its leader sees it."""

    cell_id: str
    last: int
    """The sequence of the newest message."""
    details: dict[str, Any]
    """The whole answer of JetStream."""


class CellContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the record of a cell."""

    id: str
    """A random id. A stream that was created again has another one."""
    format: int
    """The format in which records are saved; `forewarn cluster upgrade` changes it."""


class StoredAt(NamedTuple):
    """A message, and when the leader has stored it."""

    message: StoredMessage
    stored_at: datetime


class CellStream:
    """The stream of one cell."""

    def __init__(self, connection: NatsConnection, cell: str) -> None:
        self.connection = connection
        self.subjects = CellSubjects(cell)
        self.newest_format = FORMAT
        """The newest format that this process knows."""
        self.format = 1
        """The format in which this process saves: that of the cell."""

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.subjects.stream

    def settings(self, replicas: int) -> dict[str, object]:
        """Return the settings with which the stream is created. The store relies on each of them."""
        subjects = self.subjects
        return {
            "name": self.name,
            "subjects": [subjects.records, subjects.journal, subjects.pruned, subjects.guards, subjects.leases],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "allow_atomic": True,
            "allow_rollup_hdrs": True,
            "allow_msg_ttl": True,
            "allow_direct": True,
            "deny_delete": False,
            "deny_purge": False,
        }

    async def create(self, replicas: int, cell_id: str, *, first_sequence: int = 1) -> bool:
        """Create the stream and the record with the id of the cell; return False if both exist.

        `first_sequence` lets the positions of its journal follow those of another store.
        """
        check_version(self.connection.version)
        existed = True
        try:
            await self.connection.call(f"STREAM.INFO.{self.name}")
        except ApiRefused as error:
            if error.code != NO_STREAM:
                raise
            existed = False
            await self.connection.call(
                f"STREAM.CREATE.{self.name}", self.settings(replicas) | {"first_seq": first_sequence}
            )
        self.format = self.newest_format
        try:
            await self._write_cell(CellContent(id=cell_id, format=self.format), expected=0)
        except ApiRefused as error:
            if error.code != WRONG_SEQUENCE:  # the record exists
                raise
            return not existed
        return True

    async def read_state(self) -> StreamState:
        """Return the newest state, from the leader; raise StoreMissing if the cell does not exist."""
        try:
            details = await self.connection.call(f"STREAM.INFO.{self.name}")
        except ApiRefused as error:
            if error.code == NO_STREAM:
                raise StoreMissing(self.connection.servers, self.subjects.cell) from error
            raise
        cell = await self.read_last(self.subjects.of(CELL_KEY))
        if cell is None:
            raise StoreMissing(self.connection.servers, self.subjects.cell)
        return StreamState(self.accept_cell(cell).id, details["state"]["last_seq"], details)

    def accept_cell(self, message: StoredMessage) -> CellContent:
        """Return the record of the cell, and save in its format from now on; raise StoreTooNew if it is not known."""
        try:
            content = msgspec.json.decode(message.data, type=CellContent)
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(f"{CELL_KEY} of {self.name}", str(error)) from error
        self.format = check_format(f"cell {self.subjects.cell}", str(content.format), self.newest_format)
        return content

    async def switch_format(self) -> bool:
        """Let all processes save in the newest format that this one knows; return whether it was an older one."""
        cell = await self.read_last(self.subjects.of(CELL_KEY))
        if cell is None:
            raise StoreMissing(self.connection.servers, self.subjects.cell)
        content = self.accept_cell(cell)
        if content.format == self.newest_format:
            return False
        await self._write_cell(CellContent(id=content.id, format=self.newest_format), expected=cell.sequence)
        return True

    async def renew_id(self, known: str) -> None:
        """Give the cell a new id, unless another process has done so; all others drop what they have read of it."""
        cell = await self.read_last(self.subjects.of(CELL_KEY))
        if cell is None:
            raise StoreMissing(self.connection.servers, self.subjects.cell)
        content = self.accept_cell(cell)
        if content.id != known:
            return
        try:
            await self._write_cell(CellContent(id=token_hex(12), format=content.format), expected=cell.sequence)
        except ApiRefused as error:
            if error.code != WRONG_SEQUENCE:
                raise

    async def check_end(self, position: int) -> None:
        """Raise StoreReverted if the stream ends before a sequence that this process has read.

        Only a write can tell: a former leader that is cut off also answers, with what it knows. Raises
        ServerUnavailable if that was so.
        """
        end = await self.test_write(0) - 1
        if end < position:
            raise StoreReverted(self.name, f"it ends at {end}, before {position}")
        raise ServerUnavailable("a server has answered that does not lead the stream any more")

    async def is_at(self, subject: str, sequence: int) -> bool:
        """Return whether the newest message of a subject has this sequence, also as the majority of servers sees it."""
        try:
            await self.publish(
                self.subjects.guards, b"", {EXPECTED: str(sequence), EXPECTED_SUBJECT: subject, TTL: "1s"}
            )
        except ApiRefused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return False
        return True

    async def update_settings(self, found: Mapping[str, object]) -> bool:
        """Give the stream the subjects and options that this version needs; return whether it lacked some.

        Replicas and limits stay as they are: they are a choice of the operator.
        """
        wanted = self.settings(0)
        changes = {key: wanted[key] for key in REPAIRED if found.get(key) != wanted[key]}
        if not changes:
            return False
        await self.connection.call(f"STREAM.UPDATE.{self.name}", {**found, **changes})
        return True

    async def _write_cell(self, content: CellContent, *, expected: int) -> None:
        headers = {**ROLLUP, EXPECTED: str(expected), FORMAT_HEADER: str(content.format)}
        await self.publish(self.subjects.of(CELL_KEY), msgspec.json.encode(content), headers)

    async def read_last(self, subject: str) -> StoredMessage | None:
        """Return the newest message of a subject, from the leader; a direct get could return an older one."""
        found = await self.read_stored(subject)
        return None if found is None else found.message

    async def read_stored(self, subject: str) -> StoredAt | None:
        """Return the newest message of a subject as `read_last`, with its time."""
        return await self._read_message({"last_by_subj": subject})

    async def read_at(self, sequence: int) -> StoredMessage | None:
        """Return the message of a sequence, if there is one."""
        found = await self._read_message({"seq": sequence})
        return None if found is None else found.message

    async def _read_message(self, wanted: Mapping[str, object]) -> StoredAt | None:
        try:
            answer = await self.connection.call(f"STREAM.MSG.GET.{self.name}", wanted)
        except ApiRefused as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        message = answer["message"]
        headers = parse_headers(base64.b64decode(message.get("hdrs", "")))
        data = base64.b64decode(message.get("data", ""))
        stored = StoredMessage(message["subject"], message["seq"], headers, data)
        return StoredAt(stored, datetime.fromisoformat(message["time"]))

    async def count_messages(self, subjects: str) -> dict[str, int]:
        """Return how many messages each subject has."""
        counts: dict[str, int] = {}
        while True:
            body = {"subjects_filter": subjects, "offset": len(counts)}
            answer = await self.connection.call(f"STREAM.INFO.{self.name}", body)
            page: dict[str, int] = answer["state"].get("subjects") or {}
            counts |= page
            if not page or len(counts) >= answer.get("total", len(counts)):
                return counts

    async def purge_journal(self, before: int, pruned: int) -> None:
        """Remove the journal messages before a sequence; first save how far the journal is pruned."""
        value = json.dumps({"before": before, "pruned": pruned}).encode()
        await self.publish(self.subjects.pruned, value, {**ROLLUP, FORMAT_HEADER: str(self.format)})
        await self.connection.call(f"STREAM.PURGE.{self.name}", {"filter": self.subjects.journal, "seq": before})

    async def test_write(self, size: int) -> int:
        """Write a message that is removed by itself, with the quorum that a save needs, and return its sequence."""
        return await self.publish(self.subjects.guards, bytes(size), {TTL: "1s"})

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Write one message and return its sequence."""
        answer = parse_answer((await self.connection.request(subject, data, headers)).data)
        return int(answer["seq"])

    async def publish_batch(self, messages: Sequence[Message]) -> int:
        """Write messages as one atomic batch and return the sequence of the last one."""
        batch = token_hex(12)
        answer = None
        try:
            for number, (subject, data, own) in enumerate(messages, 1):
                headers = {**own, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                if number < len(messages):
                    await self.connection.publish(subject, data, headers)
                else:
                    answer = await self.connection.request(subject, data, headers | {"Nats-Batch-Commit": "1"})
        except MaxPayloadError as error:
            raise StoreUnavailable(
                self.name, "a record is larger than the servers accept: set max_payload to at least 1MB"
            ) from error
        assert answer is not None  # noqa: S101 - a batch has a message
        return int(parse_answer(answer.data)["seq"])

    def unavailable(self, error: NatsError) -> StoreUnavailable:
        """Return the store error for an operation that failed."""
        return StoreUnavailable(f"the stream {self.name}", str(error))


def check_version(version: tuple[int, int, int]) -> None:
    """Refuse a server without atomic batches."""
    if version < MIN_VERSION:
        raise InvalidServer(".".join(map(str, version)))


def parse_headers(data: bytes) -> dict[str, str]:
    """Return the headers of a message as the stream has stored them."""
    lines = data.decode().split("\r\n")[1:]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
