"""Process runner: starts a program in its own session, keeps the end of its output, and ends the whole session.

On Linux the session is all processes whose session ID is the program's pid, including those in other process groups
(such as jobs of a shell with `set -m`). A process that starts a new session, as `setsid` does, is ended too: where this
process may create a control group (cgroup v2), the program has its own, which no process can leave without privileges.
Elsewhere the program's descendants are found through their parents, so a daemon survives: it has its own session, and
its parent has ended. On systems other than Linux only the program itself is ended.

Input and output are files, not pipes. So a program that leaves a child behind does not keep us waiting for that child,
the child does not die when it prints later, and a program that outlives this process can still write.
"""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, NamedTuple, Self

import msgspec

from forewarn.core.backoff import backoff

log = logging.getLogger(__name__)

FIRST_POLL, LONGEST_POLL = 0.005, 0.1
"""Poll interval in seconds. A program that an earlier process started sends this process no SIGCHLD."""

GRACE = timedelta(seconds=2)
"""Time between SIGTERM and SIGKILL. The caller's result does not wait for it."""

KILL_TIMEOUT = timedelta(seconds=5)
"""How long to wait for the end after SIGKILL. A program that hangs in the kernel, for example on an unreachable file
server, does not end even then."""

KILL_ROUNDS = 10
"""How many times to signal the session, to catch processes that were started during the previous pass."""

MAX_OUTPUT, KEPT_OUTPUT = 1024 * 1024, 64 * 1024
"""Above how many bytes the beginning of a program's output is dropped, and how many bytes of its end are kept."""

NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
BLOCK_BYTES = 512
"""The unit of `st_blocks`."""

CGROUP_PREFIX = "forewarn-"
CGROUP_NAME = re.compile(rf"{CGROUP_PREFIX}([0-9]+)-[0-9a-f]{{12}}")
"""The control group of a program is named after it and the pid of its starter, within the starter's control group."""

_left_cgroups: set[Path] = set()
"""Control groups of programs that have ended, in which background processes were still running."""

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 0x01, 0x02
"""From the kernel's linux/falloc.h."""

LONGEST_SUMMARY = 500

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MEMORY_FILE = "forewarn"
"""The name of memory files. It is visible in /proc/PID/fd."""

RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ) if sys.platform != "win32" else ()
"""Signals that Python ignores. A child would inherit that, so they are reset for it."""


class ProcessResult(NamedTuple):
    """How a program ended, and the end of its output. The exit code of a process that is not our child is unknown."""

    code: int | None
    stdout: str
    stderr: str = ""

    @property
    def summary(self) -> str:
        """How it ended, with the last line of its output: `ended with 3: no such VM`."""
        match self.code:
            case None:
                how = "ended with an unknown exit code"
            case code if code < 0:
                how = f"was ended by {_signal_name(-code)}"
            case code:
                how = f"ended with {code}"
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return f"{how}: {_printable(lines[-1])}" if lines else how


class ProcessNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is needed to find a program again after this process was killed.

    `start_ticks` and `boot` distinguish it from a later process with the same pid. The note is written before the
    program starts, when it has no `pid` yet, and again when it has one. The pid is also the program's process group.
    """

    pid: int | None
    start_ticks: str | None = msgspec.field(name="born")
    started_at: datetime = msgspec.field(name="since")
    attempt: int
    boot: str = ""
    """The machine's boot id; empty if unknown."""
    label: str = ""
    """The name of the program's memory files; empty if its input and output have names on disk."""


class OutputFile:
    """A file to which a program appends its output. `trim` limits its size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def unnamed(cls, label: str = MEMORY_FILE) -> Iterator[Self]:
        """Create one in memory, or on disk if the system has no memory files."""
        with _unnamed_file(label) as file:
            yield cls(file)

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[Self]:
        """Create or open one on disk, readable only by its owner."""
        with os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | NOFOLLOW, 0o600), "r+b", buffering=0
        ) as file:
            yield cls(file)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file.fileno()

    @property
    def is_too_large(self) -> bool:
        """Whether `trim` should be called; False after the file is closed."""
        if self._file.closed:
            return False
        status = os.fstat(self.fileno())
        used = status.st_blocks * BLOCK_BYTES if sys.platform == "linux" else status.st_size
        return used > MAX_OUTPUT

    def trim(self) -> None:
        """Free all but the end. This may block for a while."""
        with suppress(OSError, ValueError):  # ValueError: closed in the meantime
            if not _free_beginning(self.fileno(), os.fstat(self.fileno()).st_size - KEPT_OUTPUT):
                # Output that the program appends between these lines is lost.
                end = self._read_end()
                os.ftruncate(self.fileno(), 0)
                os.write(self.fileno(), end)

    @property
    def text(self) -> str:
        """The end of the output."""
        return self._read_end().decode(errors="replace")

    def _read_end(self) -> bytes:
        """Read without moving the position at which the program writes."""
        start = max(os.fstat(self.fileno()).st_size - KEPT_OUTPUT, 0)
        if sys.platform == "win32":
            self._file.seek(start)
            return self._file.read(KEPT_OUTPUT)
        return os.pread(self.fileno(), KEPT_OUTPUT, start)


class Process:
    """A program in its own session, started by this process or by an earlier one (`attach`)."""

    def __init__(
        self,
        pid: int,
        start_ticks: str | None,
        outputs: Sequence[OutputFile],
        child: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        self.pid, self.start_ticks = pid, start_ticks
        """`start_ticks` distinguishes it from a later process with the same pid."""
        self._outputs = outputs
        self._child = child
        self._cgroup: Path | None = None
        self._strays: dict[int, str | None] = {}
        """The start times of descendants in other sessions, which are found while their parents live."""
        self._code: int | None = None

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        environ: Mapping[str, str],
        stdin: IO[bytes] | None,
        stdout: OutputFile,
        stderr: OutputFile,
    ) -> Self:
        """Start a program; raise OSError if it cannot be started. `stderr` may be the same file as `stdout`."""
        if sys.platform != "linux":
            child = subprocess.Popen(  # noqa: S603 - the user's own program, without a shell
                argv,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=stdout.fileno(),
                stderr=stderr.fileno(),
                env=environ,
                start_new_session=True,
            )
            return cls(child.pid, None, (stdout, stderr), child)
        read_from = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        pid = os.posix_spawnp(  # unlike Popen, it does not warn about a program that outlives this process
            argv[0],
            [_bytes(word) for word in argv],
            {_bytes(name): _bytes(value) for name, value in environ.items()},
            file_actions=[
                read_from if stdin is None else (os.POSIX_SPAWN_DUP2, stdin.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, stdout.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=RESTORED_SIGNALS,
        )
        started = cls(pid, _start_ticks(pid), (stdout, stderr))
        started._cgroup = _create_cgroup(pid)
        return started

    @classmethod
    def attach(cls, pid: int, start_ticks: str | None, outputs: Sequence[OutputFile]) -> Self:
        """Attach to a program that an earlier process started."""
        attached = cls(pid, start_ticks, outputs)
        if sys.platform == "linux" and _start_ticks(pid) == start_ticks:
            attached._cgroup = _find_cgroup(pid)
        return attached

    @classmethod
    def find(cls, note: ProcessNote, files: Iterable[Path] = (), outputs: Sequence[OutputFile] = ()) -> Self | None:
        """Find the program of a note, which may have ended; None if it is not there.

        If the note has no pid yet, look for a running program by a file that it was started with, which works only on
        Linux.
        """
        if note.boot and note.boot != boot_id():
            return None
        if note.pid is not None:
            return cls.attach(note.pid, note.start_ticks, outputs)
        names = {str(path.resolve()) for path in files}
        if note.label:
            names.add(f"/memfd:{note.label} (deleted)")
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if _is_session_leader(pid) and not names.isdisjoint(_standard_streams(pid)):
                return cls.attach(pid, _start_ticks(pid), outputs)
        return None

    async def wait(self) -> int | None:
        """Wait for the end and return the exit code. If the caller is cancelled, the program keeps running."""
        pauses = backoff(FIRST_POLL, LONGEST_POLL)
        while not self.has_exited():
            await asyncio.sleep(next(pauses))
            for output in self._outputs:
                if output.is_too_large:
                    await asyncio.to_thread(output.trim)
                    # Output between two polls takes memory: up to gigabytes per second.
                    pauses = backoff(FIRST_POLL, LONGEST_POLL)
        return self._code

    async def terminate(self, grace: timedelta) -> int | None:
        """End the program and its session (see `signal`): SIGTERM first, SIGKILL after a grace period.

        Return the exit code; None if it is unknown, or if the program has not ended even after SIGKILL.
        """
        self.signal(signal.SIGTERM)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace.total_seconds()):
                    await self.wait()
        finally:
            self.signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        try:
            async with asyncio.timeout(KILL_TIMEOUT.total_seconds()):
                code = await self.wait()
                pauses = backoff(FIRST_POLL, LONGEST_POLL)
                while not self._remove_cgroup():  # noqa: ASYNC110 - the kernel does not notify about the last process
                    await asyncio.sleep(next(pauses))
                return code
        except TimeoutError:
            log.warning("process %d or its children have not ended after SIGKILL; no longer waiting for them", self.pid)
            return self._code

    def signal(self, number: int, *, is_for_all: bool = True) -> None:
        """Send a signal to the program and all that it started, or to the program alone.

        Only on Linux can the others be found (see the module's docstring); elsewhere only the program gets the signal.
        """
        if self._child is not None:
            with suppress(OSError):
                self._child.send_signal(number)
        elif not is_for_all:
            with suppress(OSError):
                os.kill(self.pid, number)
        elif _start_ticks(self.pid) in (None, self.start_ticks):  # else the pid belongs to another program now
            self._strays |= {pid: _start_ticks(pid) for pid in _descendants({self.pid, *self._strays})}
            with suppress(OSError):
                os.killpg(self.pid, number)
            _signal_others(number, lambda pid: _is_in_other_group(pid, self.pid))
            for pid, ticks in self._strays.items():
                if ticks is not None and _start_ticks(pid) == ticks:
                    with suppress(OSError):
                        os.kill(pid, number)
            if self._cgroup is not None:
                _signal_cgroup(self._cgroup, number, kept=self.pid)

    def has_exited(self) -> bool:
        """Return whether it has ended."""
        has_exited = self._has_exited()
        if has_exited:
            self._remove_cgroup()
        return has_exited

    def _remove_cgroup(self) -> bool:
        """Remove the control group of a program that has ended; return False if background processes are still in it.

        Such a group is removed when a later program starts.
        """
        if self._cgroup is not None:
            if not _remove_empty_cgroup(self._cgroup):
                _left_cgroups.add(self._cgroup)
                return False
            _left_cgroups.discard(self._cgroup)
            self._cgroup = None
        return True

    def _has_exited(self) -> bool:
        if self._child is not None:
            self._code = self._child.poll()
            return self._code is not None
        if self._code is not None or _start_ticks(self.pid) != self.start_ticks:
            return True
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return not _is_alive(self.pid)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return bool(pid)


async def run_process(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: bytes = b"",
    *,
    time_limit: timedelta | None = None,
    merge: bool = False,
    label: str = MEMORY_FILE,
    on_start: Callable[[Process], None] | None = None,
) -> ProcessResult:
    """Run a program to its end. If the caller is cancelled or the time limit is over (TimeoutError), it is ended.

    Raises OSError if it cannot be started. With `merge`, stderr is part of `stdout`, in the original order. `on_start`
    is called with the started program; `label` names its memory files, by which `Process.find` finds it.
    """
    with ExitStack() as files:
        input_file = files.enter_context(_unnamed_file(label))
        stdout = files.enter_context(OutputFile.unnamed(label))
        stderr = stdout if merge else files.enter_context(OutputFile.unnamed(label))
        input_file.write(stdin)
        input_file.flush()
        input_file.seek(0)
        process = Process.start(argv, environ, input_file, stdout, stderr)
        try:
            if on_start is not None:
                on_start(process)
            async with asyncio.timeout(None if time_limit is None else time_limit.total_seconds()):
                code = await process.wait()
        except BaseException:
            await asyncio.shield(process.terminate(GRACE))
            raise
        return ProcessResult(code, stdout.text, "" if merge else stderr.text)


def _free_beginning(descriptor: int, length: int) -> bool:
    """Punch a hole at the beginning of a file without changing its size; return False if the system cannot do that.

    Output that the program appends meanwhile is kept.
    """
    if sys.platform != "linux":
        return False
    import ctypes  # only needed for programs with unlimited output

    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    return bool(libc.fallocate(descriptor, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, length) == 0)


def check_program(path: str | Path) -> str | None:
    """Return why a program cannot be started; None if it can."""
    try:
        is_file = Path(path).is_file()
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not is_file:
        return f"no such program: {path}"
    return None if os.access(path, os.X_OK) else f"{path} is not executable: run chmod +x {path}"


def boot_id(file: Path = BOOT_ID) -> str:
    """Return the boot id of the Linux kernel, or an empty string if it cannot be read."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


@contextmanager
def _unnamed_file(label: str = MEMORY_FILE) -> Iterator[IO[bytes]]:
    """Create a file in memory if the system supports it, because a full disk must not stop a handler."""
    if sys.platform == "linux":
        import fcntl

        with os.fdopen(os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b") as file:
            # Scripts that write to /dev/stderr reopen it, each with its own position: append mode is needed.
            fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
            try:
                yield file
            finally:
                # A child that was left behind still has the file open, and no process would trim it.
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    else:
        import tempfile  # not needed on Linux, and it loads half a megabyte of archive modules

        with tempfile.TemporaryFile() as file:
            yield file


def _bytes(text: str) -> bytes:
    """Encode as UTF-8; bytes from the system that are not UTF-8 are passed through unchanged."""
    return text.encode(errors="surrogateescape")


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _signal_others(number: int, is_member: Callable[[int], bool]) -> None:
    """Send a signal once to each process that belongs to a program, also to those that start meanwhile."""
    signalled: set[int] = set()
    for _ in range(KILL_ROUNDS):
        new = {pid for pid in _all_pids() if pid not in signalled and is_member(pid)}
        if not new:
            return
        for pid in new:
            with suppress(OSError):
                os.kill(pid, number)
        signalled |= new


def _descendants(roots: set[int]) -> set[int]:
    """Return the processes that these have started, except in the sessions of `roots`: those are signalled anyway."""
    parents = {pid: (int(fields[1]), int(fields[3])) for pid in _all_pids() if len(fields := _stat(pid)) > 3}
    found, sessions = set(roots), set(roots)
    while new := {pid for pid, (parent, _) in parents.items() if parent in found and pid not in found}:
        found |= new
    return {pid for pid in found - roots if parents[pid][1] not in sessions}


def _cgroup_of(pid: int | str) -> Path | None:
    """Return the directory of a process's control group; None without cgroup v2."""
    with suppress(OSError):
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        root = next((fields[1] for line in mounts if (fields := line.split())[2] == "cgroup2"), None)
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        name = next((line.removeprefix("0::/") for line in groups if line.startswith("0::/")), None)
        return None if root is None or name is None else Path(root) / name
    return None


def _create_cgroup(pid: int) -> Path | None:
    """Move a program that has just started into its own control group; return None if that is not allowed."""
    own = _cgroup_of("self")
    if own is None or not os.access(own, os.W_OK):
        return None
    for left in own.glob(f"{CGROUP_PREFIX}*"):
        name = CGROUP_NAME.fullmatch(left.name)
        if (left in _left_cgroups or (name is not None and not _is_alive(int(name[1])))) and _remove_empty_cgroup(left):
            _left_cgroups.discard(left)
    group = own / f"{CGROUP_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
    try:
        group.mkdir(mode=0o700)
        (group / "cgroup.procs").write_text(str(pid))
        _signal_others(0, lambda member: _join_cgroup(member, pid, group))  # what it has started meanwhile
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group


def _remove_empty_cgroup(group: Path) -> bool:
    """Remove a control group; return False if it still contains processes."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _join_cgroup(pid: int, session: int, group: Path) -> bool:
    """Move a process into a control group if it belongs to a session and is not there yet; return whether it was."""
    match _stat(pid):
        case [_, parent, _, found, *_] if str(session) in (parent, found) and _cgroup_of(pid) != group:
            with suppress(OSError):
                (group / "cgroup.procs").write_text(str(pid))
                return True
    return False


def _find_cgroup(pid: int) -> Path | None:
    """Return the control group that an earlier process created for a program. It never contains this process."""
    own, found = _cgroup_of("self"), _cgroup_of(pid)
    if own is None or found is None or found in (own, *own.parents):
        return None
    return found if CGROUP_NAME.fullmatch(found.name) else None


def _signal_cgroup(group: Path, number: int, *, kept: int) -> None:
    """Send a signal to every process of a control group and the groups in it, except `kept`, which has it already."""
    if sys.platform != "win32" and number == signal.SIGKILL:
        with suppress(OSError):  # older kernels have no such file
            (group / "cgroup.kill").write_text("1")
            return
    members: set[int] = set()
    for directory, _, _ in os.walk(group):  # unlike rglob, it accepts that a group disappears meanwhile
        with suppress(OSError):
            members |= {int(line) for line in Path(directory, "cgroup.procs").read_text().split()}
    _signal_others(number, lambda pid: pid in members and pid != kept)


def _is_in_other_group(pid: int, session: int) -> bool:
    match _stat(pid):
        case [_, _, group, found, *_]:
            return found == str(session) and group != str(session)
        case _:
            return False


def _is_session_leader(pid: int) -> bool:
    match _stat(pid):
        case [_, _, _, session, *_]:
            return session == str(pid)
        case _:
            return False


def _standard_streams(pid: int) -> set[str]:
    """Return the paths of a process's standard streams; empty for processes of other users."""
    found = set()
    for number in range(3):
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/fd/{number}").readlink()))
    return found


def _start_ticks(pid: int) -> str | None:
    """Return a process's start time in kernel ticks; None if it is gone or the system does not provide it."""
    fields = _stat(pid)
    return fields[19] if fields else None


def _is_alive(pid: int) -> bool:
    if fields := _stat(pid):
        return fields[0] != "Z"
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _signal_name(number: int) -> str:
    """Return a signal's name; real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line.strip()[:LONGEST_SUMMARY])
