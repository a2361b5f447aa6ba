"""Forward signals from the supervisor to the command, and restore the terminal afterwards."""

import os
import signal
import socket
import threading
from contextlib import suppress

NOT_FORWARDED = frozenset(
    {
        signal.SIGBUS,
        signal.SIGCHLD,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGKILL,
        signal.SIGPIPE,
        signal.SIGSEGV,
        signal.SIGSTOP,
        signal.SIGSYS,
        signal.SIGTRAP,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    }
)
"""Signals that the kernel sends because of the process itself, and signals that cannot be caught."""

FORWARDED = frozenset(signal.valid_signals()) - NOT_FORWARDED
STOP_SIGNALS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""The signals by which a terminal stops programs."""

BY_KERNEL = 0x80
REPLY_TIMEOUT = 1.0
"""How many seconds to wait for the reply of the signal probe, which may be stopped."""


class Terminal:
    """The terminal that the supervisor was started from, if there is one."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)

    @property
    def is_present(self) -> bool:
        """Whether the supervisor has a terminal, even if it runs in the background of a shell."""
        return self._file is not None

    def restore(self) -> None:
        """Take back the terminal if it belongs to a process group inside that no longer exists, such as a shell's."""
        if self._file is not None:
            with suppress(OSError):
                if _is_gone(os.tcgetpgrp(self._file)):
                    os.tcsetpgrp(self._file, os.getpgrp())


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


class GroupSignals:
    """Detects signals to the whole process group by asking another process of the group, the signal probe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.settimeout(REPLY_TIMEOUT)
        self._number = 0

    def has_received(self, signal_number: int) -> bool:
        """Return whether the probe has received this signal, too, since the last query."""
        self._number = (self._number + 1) % 256
        with suppress(OSError):
            self._end.send(bytes([self._number, signal_number]))
            while answer := self._end.recv(2):
                if answer[0] == self._number:  # skip late replies to earlier queries
                    return bool(answer[1])
        return False


def answer_signal_query(end: socket.socket) -> bool:
    """Answer one query of the supervisor, while all signals are blocked; return False if the channel is closed."""
    query = end.recv(2)
    if query:
        number, signal_number = query
        end.send(bytes([number, signal.sigtimedwait([signal_number], 0) is not None]))
    return bool(query)


def block_signals() -> None:
    """Block signals to the supervisor; they stay pending until the command exists and they can be forwarded."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)


def forward_signals(command: int, group: GroupSignals | None) -> None:
    """Forward signals to the command, given by its pidfd, including those that are pending.

    `group` is given if the command shares the supervisor's process group. Then signals to the whole group, from the
    terminal, a shell's `kill %1` or the command itself, are not forwarded: the command has them already.
    """
    threading.Thread(target=_forward, args=(command, group), name="signals", daemon=True).start()


def _forward(command: int, group: GroupSignals | None) -> None:
    while True:
        received = signal.sigwaitinfo(FORWARDED)
        if group is None or not _is_delivered(received, group):
            with suppress(OSError):
                signal.pidfd_send_signal(command, received.si_signo)


def _is_delivered(received: signal.struct_siginfo, group: GroupSignals) -> bool:
    """Return whether the command has received the signal without forwarding."""
    was_sent_to_all = group.has_received(received.si_signo)
    # `fg` may have removed a pending stop signal of the probe before the query.
    return was_sent_to_all or (received.si_signo in STOP_SIGNALS and received.si_code == BY_KERNEL)
