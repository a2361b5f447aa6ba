"""Messages of a cell: the subjects of its stream, and records and journal lines as messages."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forewarn.core.journal import Entry
from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreCorrupt, StoreTooNew

FORMAT = 1
"""The newest format of records that this version knows. It saves the one of the cell, which may be an older one."""

ROLLUP = {"Nats-Rollup": "sub"}
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
TTL = "Nats-TTL"
OPERATION, DELETE = "KV-Operation", "DEL"

CHANGE = "Forewarn-Change"
"""The header with the random id of the save."""
BASE = "Forewarn-Base"
"""The header with the revision that the save has replaced."""
LINES = "Forewarn-Lines"
"""The header with the distance from a record back to the last journal message of its save, if it has one."""
FORMAT_HEADER = "Forewarn-Format"

MARKER_TTL = "24h"
"""How long the marker of a deletion stands. A process that was away for longer compares with a snapshot."""

LINES_PER_MESSAGE = 200
LINE_BYTES_PER_MESSAGE = 256 * 1024

POSITIONS_PER_MESSAGE = 1_000
"""A journal position is the sequence of its message times this, plus the number of the line in the message."""

MAX_TOKEN = 2_000
"""The longest token of a subject that fits into a line of the protocol, with all the others."""

EMPTY = "="
"""The token of an empty text."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_decode_entries = msgspec.json.Decoder(list[Entry]).decode


class Message(NamedTuple):
    """A message to publish."""

    subject: str
    data: bytes
    headers: dict[str, str]


class CellSubjects(NamedTuple):
    """The names of a cell in NATS."""

    cell: str

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return f"FOREWARN-{self.cell}"

    @property
    def records(self) -> str:
        """The subjects of all records."""
        return f"$KV.{self.cell}.>"

    @property
    def journal(self) -> str:
        """The subject of all journal lines."""
        return f"J.{self.cell}"

    @property
    def pruned(self) -> str:
        """The subject with the end of what was pruned from the journal."""
        return f"P.{self.cell}"

    @property
    def guards(self) -> str:
        """The subject of empty messages that only carry a guard."""
        return f"G.{self.cell}"

    @property
    def leases(self) -> str:
        """The subjects with the processes that hold leases."""
        return f"O.{self.cell}.>"

    def lease(self, name: str) -> str:
        """Return the subject with the process that holds a lease."""
        return f"O.{self.cell}.{encode_token(name)}"

    @staticmethod
    def lease_of(subject: str) -> str:
        """Return the name of the lease of a subject."""
        return decode_token(subject.rpartition(".")[2])

    @property
    def commands(self) -> str:
        """The subjects of the commands of all hosts: the cell, the host, the command."""
        return f"C.{self.cell}.*.*"

    def command(self, host: str, name: str) -> str:
        """Return the subject of a command of a host."""
        return f"C.{self.cell}.{encode_token(host)}.{name}"

    def for_host(self, host: str, name: str) -> str:
        """Return a subject that only this host receives."""
        return f"H.{self.cell}.{encode_token(host)}.{name}"

    @staticmethod
    def consumer(host: str) -> str:
        """Return the name of the only consumer that a host may create."""
        return f"{encode_token(host).replace('=', '_')}-follow"

    def of(self, key: RecordKey) -> str:
        """Return the subject of a record; raise ValueError if its id is too long."""
        token = encode_token(key.id)
        if len(token) > MAX_TOKEN:
            raise ValueError(f"the id of {key} is too long for NATS: at most {MAX_TOKEN} encoded bytes are allowed")
        return f"$KV.{self.cell}.{key.kind.value}.{token}"

    def key_of(self, subject: str) -> RecordKey:
        """Return the key of a record's subject; raise ValueError if it is none."""
        _, cell, kind, token = subject.split(".")
        if cell != self.cell:
            raise ValueError(f"{subject} is not of cell {self.cell}")
        return RecordKey(RecordKind(kind), decode_token(token))


def encode_token(text: str) -> str:
    """Encode any text as one token of a subject; letters, digits, `_` and `-` stay as they are."""
    return "".join(char if _PLAIN.match(char) else _escape(char) for char in text) or EMPTY


def decode_token(token: str) -> str:
    """Return the text of a token."""
    if token == EMPTY:
        return ""
    parts = _ESCAPED.split(token)  # plain text and escaped bytes in turn
    return b"".join(bytes.fromhex(part) if number % 2 else part.encode() for number, part in enumerate(parts)).decode()


def _escape(char: str) -> str:
    return "".join(f"={byte:02X}" for byte in char.encode())


class StoredMessage(NamedTuple):
    """A message of the stream, with its sequence."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def is_marker(self) -> bool:
        """Whether it marks the deletion of a record."""
        return self.headers.get(OPERATION) == DELETE

    def to_change(self, key: RecordKey, newest_format: int = FORMAT) -> Record | Deleted:
        """Return the state of the record that the message contains; raise StoreTooNew for an unknown format."""
        if self.is_marker:
            return Deleted(key, self.sequence)
        check_format(self.subject, self.headers.get(FORMAT_HEADER, "1"), newest_format)
        return Record(key, self.data, self.sequence)

    @property
    def last_lines(self) -> int:
        """The sequence of the last journal message that was saved with the record; 0 if there is none."""
        distance = int(self.headers.get(LINES, 0))
        return self.sequence - distance if distance else 0


def check_format(subject: str, text: str, newest_format: int = FORMAT) -> int:
    """Return the number of a format; refuse one that this version does not know."""
    if not text.isdecimal():
        raise StoreCorrupt(subject, f"{text!r} is not the number of a format")
    if int(text) > newest_format:
        raise StoreTooNew(subject, version=int(text), supported=newest_format)
    return int(text)


def record_message(
    subject: str, value: bytes | None, *, change: str, expected: int, lines_distance: int, format_: int = FORMAT
) -> Message:
    """Return the message that replaces a record at its expected sequence, or marks it as deleted."""
    headers = {**ROLLUP, EXPECTED: str(expected), CHANGE: change, BASE: str(expected), FORMAT_HEADER: str(format_)}
    if lines_distance:
        headers[LINES] = str(lines_distance)
    if value is None:
        headers |= {OPERATION: DELETE, TTL: MARKER_TTL}
    return Message(subject, value or b"", headers)


def journal_messages(
    subject: str, key: RecordKey, entries: Sequence[Entry], *, change: str, format_: int = FORMAT
) -> Iterator[Message]:
    """Yield the journal lines of a save, several in each message."""
    header = {CHANGE: change, FORMAT_HEADER: str(format_)}
    name = json.dumps([key.kind.value, key.id]).encode()
    lines: list[bytes] = []
    size = 0
    for line in map(msgspec.json.encode, entries):
        if lines and (len(lines) == LINES_PER_MESSAGE or size + len(line) > LINE_BYTES_PER_MESSAGE):
            yield Message(subject, name + b"\n[" + b",".join(lines) + b"]", header)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield Message(subject, name + b"\n[" + b",".join(lines) + b"]", header)


def read_lines(message: StoredMessage, newest_format: int = FORMAT) -> tuple[RecordKey, list[Entry]]:
    """Return the record and the entries of a journal message."""
    check_format(message.subject, message.headers.get(FORMAT_HEADER, "1"), newest_format)
    try:
        name, _, lines = message.data.partition(b"\n")
        kind, id_ = json.loads(name)
        return RecordKey(RecordKind(kind), id_), _decode_entries(lines)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"message {message.sequence} of {message.subject}", str(error)) from error
