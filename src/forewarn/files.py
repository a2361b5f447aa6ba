"""Atomic, durable file writes, lock files, and private directories that no other user can tamper with.

Nothing else in the package renames, syncs or locks a file.
"""

import errno
import glob
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Self

from forewarn.core.base_error import BaseError

OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
LINK_TEXT = "is a symbolic link, which is not followed here; remove it"
ROOT = 0
"""The user id of root, who can change every directory anyway."""

LONGEST_PID = 32
TEMPORARY_SUFFIX = ".new"
"""The suffix of temporary files. A process that is killed while it writes leaves one behind, which can be deleted."""

UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})
"""The errors of files that cannot be written, but perhaps read."""

CHUNK_BYTES = 1 << 20
"""How much of a file is read at a time."""

if sys.platform == "win32":
    import msvcrt

    _LOCK_OFFSET = 1 << 20  # other processes cannot read a locked byte, and they need to read the process id at 0

    def _try_lock(fd: int) -> None:
        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def is_locked(_: int) -> bool:
        """Return True always: on Windows only taking the lock would tell."""
        return True
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        # The lock belongs to the open file, not to the process, so it also excludes a second owner in this process.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_locked(fd: int) -> bool:
        """Return whether any process holds the lock of an open file."""
        # Readers take a shared lock, so that one reader does not take another reader for the holder.
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class FileLocked(BaseError):
    """Another process has locked the file; `pid` is None if the holder did not write its process id."""

    template = "{path} is locked by another process"
    path: Path
    pid: int | None


class UnsafeDirectory(BaseError):
    """Another user can change what is in the directory, or a file in it is a symbolic link."""

    template = "{directory} {problem}: {advice}, or choose another directory"
    directory: Path
    problem: str
    advice: str


def keep_owner_permissions() -> None:
    """Let the umask remove no permission of the owner of new files, so that modes in private directories are exact."""
    os.umask(os.umask(0) & (stat.S_IRWXG | stat.S_IRWXO))


def prepare_directory(directory: Path, names: Iterable[str] = ()) -> str | None:
    """Create the directory with mode 0700, or make an empty one private. One with files keeps its mode.

    Raise UnsafeDirectory if another user can change it, or if one of `names`, or a file in a directory of that name,
    is a symbolic link. Return a warning if the group can change it.
    """
    for parent in reversed((directory, *directory.parents)):
        with suppress(FileExistsError):
            if not parent.exists():
                parent.mkdir(mode=0o700)
    if not any(directory.iterdir()):
        with suppress(PermissionError):  # a mounted volume may belong to another user, who decides about its mode
            directory.chmod(0o700)
        sync_directory(directory.parent)
    return check_directory(directory, names)


def check_directory(directory: Path, names: Iterable[str] = ()) -> str | None:
    """Check a directory as `prepare_directory` does, without changing it."""
    check_links(directory, names)
    if sys.platform == "win32":
        return None
    status, own = directory.stat(), os.geteuid()
    problems: dict[str, str] = {}
    if status.st_uid not in {own, ROOT}:
        problems[f"belongs to {_user_name(status.st_uid)}"] = _command("chown", directory, _user_name(own))
    if status.st_mode & stat.S_IWOTH:
        problems["is writable by every user"] = _command("chmod", directory, "o-w")
    if problems:
        raise UnsafeDirectory(directory, " and ".join(problems), f"run `{' && '.join(problems.values())}`")
    if status.st_mode & stat.S_IWGRP:
        command = _command("chmod", directory, "g-w")
        return f"{directory} is writable by its group, whose members could replace its files: run `{command}`"
    return None


def check_links(directory: Path, names: Iterable[str]) -> None:
    """Raise UnsafeDirectory if one of `names`, or a file in a directory of that name, is a symbolic link."""
    for name in names:
        for path in _tree(directory / name):
            if path.is_symlink():
                problem, command = "is a symbolic link, which Forewarn does not follow", _command("rm", path)
                raise UnsafeDirectory(path, problem, f"run `{command}`")


def _tree(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        yield from path.iterdir()


def _command(program: str, path: Path, *words: str) -> str:
    import shlex  # only for error messages

    return shlex.join((program, *words, str(path)))


def _user_name(number: int) -> str:
    import pwd  # only for error messages

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


class FileLock:
    """A locked file. The system releases the lock when the process ends, however it ends."""

    def __init__(self, fd: int, *, has_pid: bool) -> None:
        self._fd, self._has_pid = fd, has_pid

    @classmethod
    def acquire(cls, path: Path, *, may_be_read_only: bool = False) -> Self:
        """Create the lock file if it is missing, lock it and write our process id; raise FileLocked or OSError.

        A lock file that may be read-only, or on a full disk, is locked without the process id.
        """
        has_pid = True
        try:
            fd = open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if not may_be_read_only or error.errno not in UNWRITABLE or not path.exists():
                raise
            fd, has_pid = open_file(path, os.O_RDONLY), False
        try:
            _lock(fd, path)
            if has_pid:
                os.ftruncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
                with suppress(OSError) if may_be_read_only else nullcontext():
                    os.write(fd, f"{os.getpid()}\n".encode())
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, has_pid=has_pid)

    @classmethod
    def hold(cls, file: BinaryIO, path: Path) -> Self:
        """Lock an open file, and hold the lock after the file is closed; raise FileLocked, which names `path`."""
        fd = os.dup(file.fileno())
        try:
            if sys.platform != "win32":  # a locked file cannot be read there
                _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, has_pid=False)

    def release(self) -> None:
        """Release the lock. The file stays, because removing it would race with the next owner."""
        if self._has_pid:
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _lock(fd: int, path: Path) -> None:
    try:
        _try_lock(fd)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            raise FileLocked(path, _read_pid(path)) from error
        raise


def _read_pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(read_file(path, LONGEST_PID))
    return None


@contextmanager
def replace_path(path: Path, *, is_private: bool = True) -> Iterator[Path]:
    """Yield the path of an empty file. It replaces `path` durably when the context ends without an error.

    A private file is readable only by its owner. Other files keep the mode of the file that they replace.
    """
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    # Not tempfile: it imports archive modules, which an agent would keep in memory.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not is_private:
            temporary.chmod(_file_mode(path))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextmanager
def replace_file(path: Path, *, is_private: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to write to, which replaces `path` in the same way."""
    with replace_path(path, is_private=is_private) as temporary, temporary.open("r+b") as file:
        yield file


def write_file(path: Path, content: bytes, *, is_private: bool = True) -> None:
    """Replace a file's content atomically: after a crash the file is either the old or the new one. Raises OSError."""
    with replace_file(path, is_private=is_private) as file:
        file.write(content)


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file of a private directory, and return its descriptor. A symbolic link in its place is an OSError."""
    try:
        return os.open(path, flags | OPEN_FLAGS, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, LINK_TEXT, str(path)) from error


def read_file(path: Path, limit: int | None = None) -> bytes:
    """Read a file of a private directory. Raises OSError, also for a symbolic link, or ValueError above the limit."""
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        content = file.read(-1 if limit is None else limit + 1)
    if limit is not None and len(content) > limit:
        raise ValueError(f"{path} is larger than {limit} bytes")
    return content


def rewrite_file(path: Path) -> None:
    """Write a file again in place, with the same content, and sync it, even if an earlier sync has failed."""
    with os.fdopen(open_file(path, os.O_RDWR), "r+b", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            file.seek(-len(chunk), os.SEEK_CUR)
            file.write(chunk)
        os.fsync(file.fileno())


def check_room(path: Path, size: int) -> None:
    """Raise OSError unless a file of this size can be written. The file at `path` is replaced and removed."""
    with suppress(FileNotFoundError):
        path.unlink()
    try:
        with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb", buffering=0) as file:
            while size > 0:
                size -= file.write(bytes(min(size, CHUNK_BYTES)))
    finally:
        path.unlink(missing_ok=True)


def move(source: Path, target: Path) -> None:
    """Rename a file or directory durably. A file with the new name is replaced. Raises OSError."""
    source.replace(target)
    for directory in dict.fromkeys((target.parent, source.parent)):  # the new name first, so that one always exists
        sync_directory(directory)


def remove_file(path: Path) -> None:
    """Remove a file durably, if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that killed processes left. Only the one process that writes `path` may call this."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*{TEMPORARY_SUFFIX}"):
        left.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return  # directories cannot be opened on Windows, and NTFS journals names itself
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # writable but not readable, so it cannot be synced
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_mode(path: Path) -> int:
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
