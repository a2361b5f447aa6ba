"""Create the Linux namespaces and run the command in them; report how it ends.

    supervisor, outside
    └── keeper        creates the namespaces; stays outside the new PID namespace
        └── init      PID 1: sets everything up, runs the command, reaps orphans
            └── command

Each process is killed when its parent ends. When PID 1 ends, the kernel kills the rest of its namespace."""

import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from forewarn.testing.sandbox import syscalls
from forewarn.testing.sandbox.channel import Channel, ChannelClosed, MessageType
from forewarn.testing.sandbox.errors import print_error
from forewarn.testing.sandbox.signals import answer_signal_query

ADDRESS, PORT = "169.254.169.254", 80
ACCEPT_QUEUE = 1024

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes if the command cannot be started, the same as in shells."""

NAMESPACES = (
    syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNS
)


class NamespaceOptions(NamedTuple):
    """The command to run, and its environment."""

    command: list[str]
    hostname: str
    listeners: list[tuple[str, int]]
    """The addresses and ports inside at which the supervisor accepts connections."""
    hidden: Path
    """The directory with the sockets of VMs."""
    nameserver: str | None
    """The DNS server; None without a network."""
    has_own_group: bool
    """Whether the command has its own process group, so that it gets only the signals that are forwarded to it."""


def run_namespace(
    options: NamespaceOptions, channel: Channel, signal_queries: socket.socket, supervisor: int
) -> NoReturn:
    """Create the namespaces and the first process in them; end when that process or the supervisor ends.

    Meanwhile answer the supervisor's queries about signals to the process group.
    """
    try:
        syscalls.unshare(NAMESPACES)
        syscalls.die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)
        channel.send(MessageType.UNSHARED)
        channel.expect(MessageType.MAPPED)
        keeper = os.pidfd_open(os.getpid())
        files = _open_files()  # before init mounts another /proc
        # Signals to the whole process group are for the command; this process only reports them to the supervisor.
        # They have no effect on process 1.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        init = os.fork()
        if init == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signal_queries.close()
            _run_init(options, channel, keeper)
        syscalls.drop_capability(syscalls.CAP_SYS_ADMIN)
        _close_files(files, channel.fileno(), signal_queries.fileno())
        _wait_for_init(init, signal_queries)
    except OSError as error:
        _send_failure(channel, error)
    except ChannelClosed:
        pass
    finally:
        os._exit(0)


def _wait_for_init(init: int, signal_queries: socket.socket) -> None:
    ended = os.pidfd_open(init)
    while ended not in select.select([ended, signal_queries.fileno()], [], [])[0]:
        if not answer_signal_query(signal_queries):
            break
    os.waitpid(init, 0)


def _run_init(options: NamespaceOptions, channel: Channel, keeper: int) -> NoReturn:
    try:
        syscalls.die_with_parent()
        # The keeper may have ended before that call. Its pid is not visible here, in the new PID namespace.
        if select.select([keeper], [], [], 0)[0]:
            os._exit(1)
        listeners = _set_up(options)
        # Otherwise a command with root rights in its namespace could unmount the cover of the hidden directory, itself
        # or through this process.
        syscalls.drop_capability(syscalls.CAP_SYS_ADMIN)
        for listener in listeners:
            channel.send(MessageType.READY, file=listener.fileno())
            listener.close()
        channel.expect(MessageType.GO)
        command = os.fork()
        if command == 0:
            _exec_command(options)
        channel.send(MessageType.BEGUN, file=os.pidfd_open(command))
        _close_files(_open_files(), channel.fileno())
        channel.send(MessageType.ENDED, _wait_for_command(command, lambda: channel.send(MessageType.STOPPED)))
    except OSError as error:
        _send_failure(channel, error)
    except ChannelClosed:
        pass
    finally:
        os._exit(0)


def _set_up(options: NamespaceOptions) -> list[socket.socket]:
    socket.sethostname(options.hostname)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    _hide_sockets(options)
    # Some systems refuse this, such as containers that hide parts of /proc: then the old /proc stays.
    with suppress(OSError):
        syscalls.mount("proc", "/proc", "proc", syscalls.RESTRICTED_MOUNT)
    syscalls.bring_up("lo")
    syscalls.add_address("lo:1", ADDRESS)
    return [socket.create_server(address, backlog=ACCEPT_QUEUE) for address in options.listeners]


def _hide_sockets(options: NamespaceOptions) -> None:
    """Cover the sockets of all VMs with an empty directory; set the host name and the DNS server in /etc."""
    cover = str(options.hidden)
    syscalls.mount("tmpfs", cover, "tmpfs", syscalls.RESTRICTED_MOUNT, "mode=755,size=64m")
    _replace_file(Path("/etc/hosts"), options.hidden, lambda text: f"{text.rstrip()}\n127.0.1.1 {options.hostname}\n")
    if options.nameserver is not None:
        _replace_file(Path("/etc/resolv.conf"), options.hidden, lambda text: _resolv_conf(text, options.nameserver))
    _make_read_only(cover)


def _replace_file(file: Path, directory: Path, change: Callable[[str], str]) -> None:
    """Mount a changed copy over the file, if it exists."""
    if file.is_file():
        draft = directory / file.name
        draft.write_text(change(file.read_text(errors="replace")))
        syscalls.mount(str(draft), str(file), flags=syscalls.MS_BIND)
        _make_read_only(str(file))
        draft.unlink()


def _make_read_only(mounted: str) -> None:
    syscalls.mount(
        "none", mounted, flags=syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.RESTRICTED_MOUNT
    )


def _resolv_conf(text: str, nameserver: str | None) -> str:
    others = [line for line in text.splitlines() if not line.lstrip().startswith("nameserver")]
    return "\n".join([f"nameserver {nameserver}", *others, ""])


def _exec_command(options: NamespaceOptions) -> NoReturn:
    try:
        if options.has_own_group:
            os.setpgid(0, 0)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        os.environ["HOSTNAME"] = options.hostname
        os.execvp(options.command[0], options.command)  # noqa: S606 - running the caller's command is the purpose
    except OSError as error:
        print_error(f"cannot run {options.command[0]}: {error.strerror}")
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def _open_files() -> list[int]:
    """Return the open file descriptors of this process; trying all possible ones would take too long."""
    return [int(file) for file in os.listdir("/proc/self/fd")]


def _close_files(files: list[int], *kept: int) -> None:
    """Close all other files: a reader of the command's output must see its end when the command closes it."""
    for file in files:
        if file not in kept:
            with suppress(OSError):  # the descriptor that the list was read from is already closed
                os.close(file)


def _wait_for_command(command: int, on_stopped: Callable[[], None]) -> int:
    """Wait for the command, and reap orphans until then; return its exit code as a shell does."""
    while True:
        process, status = os.waitpid(-1, os.WUNTRACED)
        if process != command:
            continue
        if os.WIFSTOPPED(status):
            on_stopped()
        else:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _send_failure(channel: Channel, error: OSError) -> None:
    with suppress(OSError):
        channel.send(MessageType.FAILED, error.errno or 0)
