"""The stream of a cell: creates and checks it, reads single messages from its leader, and purges the journal."""

import base64
import json
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from nats.errors import MaxPayloadError

from forewarn.store.nats.connection import ApiRefused, NatsConnection, ResponseMissing, ServerUnavailable, parse_answer
from forewarn.store.nats.message import (
    EXPECTED,
    FORMAT,
    FORMAT_HEADER,
    ROLLUP,
    TTL,
    CellSubjects,
    Message,
    StoredMessage,
    check_format,
)
from forewarn.store.port import RecordKey, RecordKind, StoreCorrupt, StoreError, StoreMissing, StoreUnavailable

CELL_KEY = RecordKey(RecordKind.FLEET, "cell")
"""The record with the random id of the cell. It belongs to the store, and is hidden from its users."""

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


class CellStream:
    """The stream of one cell."""

    def __init__(self, connection: NatsConnection, cell: str) -> None:
        self.connection = connection
        self.subjects = CellSubjects(cell)

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
        value = json.dumps({"id": cell_id, "format": FORMAT}).encode()
        headers = {**ROLLUP, EXPECTED: "0", FORMAT_HEADER: str(FORMAT)}
        try:
            await self.publish(self.subjects.of(CELL_KEY), value, headers)
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
        try:
            content = json.loads(cell.data)
            cell_id, format_ = str(content["id"]), str(content["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(f"{CELL_KEY} of {self.name}", str(error)) from error
        check_format(f"cell {self.subjects.cell}", format_)
        return StreamState(cell_id, details["state"]["last_seq"], details)

    async def read_last(self, subject: str) -> StoredMessage | None:
        """Return the newest message of a subject, from the leader; a direct get could return an older one."""
        try:
            answer = await self.connection.call(f"STREAM.MSG.GET.{self.name}", {"last_by_subj": subject})
        except ApiRefused as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        message = answer["message"]
        headers = parse_headers(base64.b64decode(message.get("hdrs", "")))
        return StoredMessage(message["subject"], message["seq"], headers, base64.b64decode(message.get("data", "")))

    async def purge_journal(self, before: int, pruned: int) -> None:
        """Remove the journal messages before a sequence; first save how far the journal is pruned."""
        value = json.dumps({"before": before, "pruned": pruned}).encode()
        await self.publish(self.subjects.pruned, value, {**ROLLUP, FORMAT_HEADER: str(FORMAT)})
        await self.connection.call(f"STREAM.PURGE.{self.name}", {"filter": self.subjects.journal, "seq": before})

    async def test_write(self, size: int) -> None:
        """Write a message that is removed by itself, with the quorum that a save needs."""
        await self.publish(self.subjects.guards, bytes(size), {TTL: "1s"})

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

    def unavailable(self, error: ApiRefused | ResponseMissing | ServerUnavailable) -> StoreUnavailable:
        """Return the store error for an operation that failed."""
        failure = StoreUnavailable(f"the stream {self.name}", str(error))
        failure.__cause__ = error
        return failure


def check_version(version: tuple[int, int, int]) -> None:
    """Refuse a server without atomic batches."""
    if version < MIN_VERSION:
        raise InvalidServer(".".join(map(str, version)))


def parse_headers(data: bytes) -> dict[str, str]:
    """Return the headers of a message as the stream has stored them."""
    lines = data.decode().split("\r\n")[1:]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
