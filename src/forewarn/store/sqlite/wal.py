"""SQLite's write-ahead log as a file: what recovery would find in it after a crash, and making that durable.

Format: https://www.sqlite.org/walformat.html. SQLite writes the log; nothing here changes its content.
"""

import os
import struct
from pathlib import Path

from forewarn.files import open_file, read_file, rewrite_file

_HEADER = struct.Struct(">8I")
"""Magic, version, page size, number of checkpoints, two salts, two checksums."""

_FRAME_HEADER = struct.Struct(">6I")
"""Page, size of the database after a commit or 0, two salts, two checksums."""

_BIG_ENDIAN = 1
"""The bit of the magic number: checksums read words as big-endian."""

_END_IN_INDEX = 16
"""Where the shared memory has the number of the last frame that SQLite regards as committed, in native byte order."""


def log_path(database: Path) -> Path:
    """Return the path of a database's log."""
    return database.with_name(f"{database.name}-wal")


def index_path(database: Path) -> Path:
    """Return the path of the shared memory, which has the index of the log."""
    return database.with_name(f"{database.name}-shm")


def has_uncommitted_end(database: Path) -> bool:
    """Return whether the log has a complete transaction after the last one that SQLite regards as committed.

    After an error at COMMIT, recovery would find such a transaction. If there is none, nothing was saved.
    """
    try:
        (end,) = struct.unpack_from("=I", read_file(index_path(database)), _END_IN_INDEX)
        with os.fdopen(open_file(log_path(database), os.O_RDONLY), "rb") as log:
            return _finds_commit(log.fileno(), after=end)
    except (OSError, struct.error):
        return True  # nothing is known about it


def rewrite(database: Path) -> None:
    """Write an existing log again, with the same content, and sync it.

    After a crash the log may end with transactions that were never synced, or whose sync failed. Then the kernel may
    regard their pages as written although they are not, and a sync alone would skip them. Recovery shows them all the
    same, so they must be durable before the service acts on them.
    """
    if log_path(database).exists():
        rewrite_file(log_path(database))


def _finds_commit(fd: int, *, after: int) -> bool:
    """Follow the frames as recovery does, up to the first invalid one."""
    header = os.pread(fd, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return False
    magic, _, page_size, _, *salts, first, second = _HEADER.unpack(header)
    frame_size = _FRAME_HEADER.size + page_size
    words = struct.Struct(f"{'>' if magic & _BIG_ENDIAN else '<'}{(8 + page_size) // 4}I")
    offset = _HEADER.size + after * frame_size
    if after:
        *_, first, second = _FRAME_HEADER.unpack(os.pread(fd, _FRAME_HEADER.size, offset - frame_size))
    while len(frame := os.pread(fd, frame_size, offset)) == frame_size:
        _, size_after_commit, *rest = _FRAME_HEADER.unpack_from(frame)
        values = iter(words.unpack(frame[:8] + frame[_FRAME_HEADER.size :]))
        for even, odd in zip(values, values, strict=True):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        if rest != [*salts, first, second]:
            return False
        if size_after_commit:
            return True
        offset += frame_size
    return False
