"""The side of the sandbox that is inside: it makes the namespaces, runs the command in them, and says how it ends.

    supervisor, outside
    └── keeper        makes the namespaces; it is not in the new process namespace itself, its child is
        └── first     process 1: sets everything up, runs the command, adopts orphans
            └── command

Each is killed when the one above it ends. When process 1 ends, the kernel kills whatever else is in its namespace.
"""

import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from forewarn.testing.sandbox import system
from forewarn.testing.sandbox.channel import Channel, Silence, Word
from forewarn.testing.sandbox.errors import complain
from forewarn.testing.sandbox.signals import bear_witness

ADDRESS, PORT = "169.254.169.254", 80
ACCEPT_QUEUE = 1024

NOT_FOUND, NOT_RUN = 127, 126
"""How it ends when the command cannot be begun, as shells do."""

NAMESPACES = system.NEW_USERS | system.NEW_NETWORK | system.NEW_HOST_NAME | system.NEW_PROCESSES | system.NEW_MOUNTS


class Plan(NamedTuple):
    """What is to be run, and what it finds there."""

    command: list[str]
    hostname: str
    hidden: Path
    """The directory with the sockets of VMs."""
    nameserver: str | None
    """Who resolves names; None: nobody, because there is no network."""
    has_own_group: bool
    """Whether the command has a process group to itself, so that it gets only those signals that are sent on to it."""


def keep(plan: Plan, channel: Channel, questions: socket.socket, supervisor: int) -> NoReturn:
    """Make the namespaces and a first process in them; end when that ends, or when the supervisor does.

    Meanwhile answer what the supervisor asks about signals to the process group.
    """
    try:
        system.unshare(NAMESPACES)
        system.die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)
        channel.say(Word.UNSHARED)
        channel.await_word(Word.MAPPED)
        files = _files()  # as long as /proc is still that of this process
        # What is sent to the whole process group is for the command, and here only to be told of; to process 1 it does
        # nothing anyway.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        first = os.fork()
        if first == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            questions.close()
            _be_first(plan, channel)
        system.give_up(system.MAY_ADMINISTER)
        _leave(files, channel.fileno(), questions.fileno())
        _await_first(first, questions)
    except OSError as error:
        _say_failed(channel, error)
    except Silence:
        pass
    finally:
        os._exit(0)


def _await_first(first: int, questions: socket.socket) -> None:
    ended = os.pidfd_open(first)
    while ended not in select.select([ended, questions.fileno()], [], [])[0]:
        if not bear_witness(questions):
            break
    os.waitpid(first, 0)


def _be_first(plan: Plan, channel: Channel) -> NoReturn:
    try:
        system.die_with_parent()
        listener = _set_up(plan)
        # Root among its own could otherwise uncover what is hidden, by its own hand or by ours.
        system.give_up(system.MAY_ADMINISTER)
        channel.say(Word.READY, file=listener.fileno())
        listener.close()
        channel.await_word(Word.GO)
        command = os.fork()
        if command == 0:
            _become(plan)
        channel.say(Word.BEGUN, file=os.pidfd_open(command))
        _leave(_files(), channel.fileno())
        channel.say(Word.ENDED, _await_end(command, lambda: channel.say(Word.STOPPED)))
    except OSError as error:
        _say_failed(channel, error)
    except Silence:
        pass
    finally:
        os._exit(0)


def _set_up(plan: Plan) -> socket.socket:
    socket.sethostname(plan.hostname)
    system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
    _hide(plan)
    # A system may refuse this, as a container with parts of /proc hidden does: then the old one has to do.
    with suppress(OSError):
        system.mount("proc", "/proc", "proc", system.HARMLESS)
    system.switch_on("lo")
    system.add_address("lo:1", ADDRESS)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((ADDRESS, PORT))
    listener.listen(ACCEPT_QUEUE)
    return listener


def _hide(plan: Plan) -> None:
    """Cover the sockets of all VMs with an empty directory, and on the way tell programs how names are resolved."""
    cover = str(plan.hidden)
    system.mount("tmpfs", cover, "tmpfs", system.HARMLESS, "mode=755,size=64m")
    _replace(Path("/etc/hosts"), plan.hidden, lambda text: f"{text.rstrip()}\n127.0.1.1 {plan.hostname}\n")
    if plan.nameserver is not None:
        _replace(Path("/etc/resolv.conf"), plan.hidden, lambda text: _resolving(text, plan.nameserver))
    _protect(cover)


def _replace(file: Path, workshop: Path, change: Callable[[str], str]) -> None:
    """Show another text in the place of a file, if there is such a file."""
    if file.is_file():
        draft = workshop / file.name
        draft.write_text(change(file.read_text(errors="replace")))
        system.mount(str(draft), str(file), flags=system.BIND)
        _protect(str(file))
        draft.unlink()


def _protect(mounted: str) -> None:
    system.mount("none", mounted, flags=system.REMOUNT | system.BIND | system.READ_ONLY | system.HARMLESS)


def _resolving(text: str, nameserver: str | None) -> str:
    others = [line for line in text.splitlines() if not line.lstrip().startswith("nameserver")]
    return "\n".join([f"nameserver {nameserver}", *others, ""])


def _become(plan: Plan) -> NoReturn:
    try:
        if plan.has_own_group:
            os.setpgid(0, 0)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        os.execvp(plan.command[0], plan.command)  # noqa: S606 - this is what it is for
    except OSError as error:
        complain(f"cannot run {plan.command[0]}: {error.strerror}")
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)
    finally:
        os._exit(NOT_RUN)


def _files() -> list[int]:
    """Return which files this process has open; there may be room for a milliard of them."""
    return [int(file) for file in os.listdir("/proc/self/fd")]


def _leave(files: list[int], *needed: int) -> None:
    """Hold nothing open that is not needed: who reads what the command writes waits for its end alone."""
    for file in files:
        if file not in needed:
            with suppress(OSError):  # the one that the list was read from
                os.close(file)


def _await_end(command: int, say_stopped: Callable[[], None]) -> int:
    """Wait for the command, and for whichever orphans end before it; return its exit code, as shells say it."""
    while True:
        process, status = os.waitpid(-1, os.WUNTRACED)
        if process != command:
            continue
        if os.WIFSTOPPED(status):
            say_stopped()
        else:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _say_failed(channel: Channel, error: OSError) -> None:
    with suppress(OSError):
        channel.say(Word.FAILED, error.errno or 0)
