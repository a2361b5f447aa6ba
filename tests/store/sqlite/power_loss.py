"""A model of power loss: what a recorded disk may have when the power fails at some moment.

A write is on the disk for certain after a successful sync of its file. Until then, each of its sectors may be there or
not, and so may a truncation. After a sync that failed, the kernel may regard the pages as clean without having written
them: then a later sync does not help, only writing them again does.
"""

import random
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import msgspec

SECTOR = 512
NAMES = {1: "forewarn.db", 2: "forewarn.db-wal"}
DIRECTORY = 4

_HEAD = struct.Struct("=4Q")


class Kind(IntEnum):
    """The kinds of recorded calls."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 3
    PRINT = 4
    FAILED_SYNC = 5


class Call(msgspec.Struct, frozen=True):
    """A call that had an effect. The offset of a truncation is the new length."""

    kind: Kind
    file: int
    offset: int
    data: bytes


def read_calls(path: Path) -> Iterator[Call]:
    """Return the calls that the preloaded library recorded, in order."""
    content = path.read_bytes()
    at = 0
    while at + _HEAD.size <= len(content):
        kind, file, offset, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        yield Call(Kind(kind), file, offset, content[at : at + length])
        at += length


class _File:
    """A file: what is on the disk for certain, and the calls after that."""

    def __init__(self, content: bytes | None) -> None:
        self.exists = content is not None
        self._certain = bytearray(content or b"")
        self._calls: list[tuple[Call, bool]] = []  # whether it is certain
        self._pending: list[int] = []

    def add(self, call: Call) -> None:
        match call.kind:
            case Kind.WRITE | Kind.TRUNCATE:
                self._pending.append(len(self._calls))
                self._calls.append((call, False))
            case Kind.SYNC:
                for number in self._pending:
                    self._calls[number] = (self._calls[number][0], True)
                self._pending.clear()
                self._fold()
            case _:
                self._pending.clear()  # these stay uncertain

    def _fold(self) -> None:
        """Apply the calls that are certain, up to the first one that is not."""
        certain = next((n for n, (_, is_certain) in enumerate(self._calls) if not is_certain), len(self._calls))
        for call, _ in self._calls[:certain]:
            _apply(self._certain, call)
        del self._calls[:certain]
        self._pending = [number - certain for number in self._pending]

    def after_power_loss(self, chance: random.Random, share: float) -> bytes:
        """Return what the file may have: of what is uncertain, about this share of the sectors."""
        content = bytearray(self._certain)
        for call, is_certain in self._calls:
            if is_certain:
                _apply(content, call)
            elif call.kind is Kind.TRUNCATE:
                if chance.random() < share:
                    _apply(content, call)
            else:
                for part in _sectors(call):
                    if chance.random() < share:
                        _apply(content, part)
        return bytes(content)


def _sectors(call: Call) -> Iterator[Call]:
    at, end = call.offset, call.offset + len(call.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        yield Call(call.kind, call.file, at, call.data[at - call.offset : until - call.offset])
        at = until


def _apply(content: bytearray, call: Call) -> None:
    size = call.offset if call.kind is Kind.TRUNCATE else max(len(content), call.offset + len(call.data))
    content.extend(bytes(max(0, size - len(content))))
    if call.kind is Kind.TRUNCATE:
        del content[size:]
    else:
        content[call.offset : call.offset + len(call.data)] = call.data


class RecordedDisk:
    """The disk of a recorded process: what a power loss may leave of it, call by call."""

    def __init__(self, base: Path) -> None:
        self._files = {
            number: _File((base / name).read_bytes() if (base / name).exists() else None)
            for number, name in NAMES.items()
        }

    def add(self, call: Call) -> None:
        """Carry out the next call."""
        if call.file in self._files:
            self._files[call.file].add(call)
        elif call.file == DIRECTORY and call.kind is Kind.SYNC:
            for file in self._files.values():
                file.exists = True

    def lose_power(self, directory: Path, chance: random.Random, share: float) -> None:
        """Write what may be on the disk into a directory."""
        directory.mkdir()
        for number, name in NAMES.items():
            file = self._files[number]
            if file.exists or chance.random() < share:
                (directory / name).write_bytes(file.after_power_loss(chance, share))
