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
"""What the system says to a process of its own doing, and what nobody can take."""

FORWARDED = frozenset(signal.valid_signals()) - NOT_FORWARDED
STOP_SIGNALS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""How terminals stop programs."""

BY_KERNEL = 0x80
REPLY_TIMEOUT = 1.0
"""For how many seconds to wait for the answer of the signal probe, which may be stopped."""


class Terminal:
    """The terminal that the supervisor was started from, if there is one."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)

    @property
    def is_present(self) -> bool:
        """Whether somebody may type keys for us, now or, in the background of a shell, later."""
        return self._file is not None

    def restore(self) -> None:
        """Have the terminal again that a shell inside took for itself, and could not give back: it is gone."""
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
    """Knows what was sent to the whole process group: another process of it, that no signal is ever meant for."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.settimeout(REPLY_TIMEOUT)
        self._number = 0

    def has_received(self, signal_number: int) -> bool:
        """Tell whether it has got this signal, too, since it was last asked."""
        self._number = (self._number + 1) % 256
        with suppress(OSError):
            self._end.send(bytes([self._number, signal_number]))
            while answer := self._end.recv(2):
                if answer[0] == self._number:  # one that came too late is none any more
                    return bool(answer[1])
        return False


def answer_signal_query(end: socket.socket) -> bool:
    """Answer a question of the supervisor's, all signals being blocked; return False if there will be no more."""
    query = end.recv(2)
    if query:
        number, signal_number = query
        end.send(bytes([number, signal.sigtimedwait([signal_number], 0) is not None]))
    return bool(query)


def block_signals() -> None:
    """Let no signal hit the supervisor from now on; they wait until there is a command that they are for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)


def forward_signals(command: int, group: GroupSignals | None) -> None:
    """Send signals on to a command, known by its pidfd, those too that were held back.

    One that shares the supervisor's process group, of which there is a probe then, has got already what was sent to
    the group: by the terminal, by a shell's `kill %1`, or by itself.
    """
    threading.Thread(target=_forward, args=(command, group), name="signals", daemon=True).start()


def _forward(command: int, group: GroupSignals | None) -> None:
    while True:
        received = signal.sigwaitinfo(FORWARDED)
        if group is None or not _is_delivered(received, group):
            with suppress(OSError):
                signal.pidfd_send_signal(command, received.si_signo)


def _is_delivered(received: signal.struct_siginfo, group: GroupSignals) -> bool:
    """Tell whether the command has got it without us."""
    was_sent_to_all = group.has_received(received.si_signo)
    # By the time that the probe is asked, `fg` may have taken back what was to stop it.
    return was_sent_to_all or (received.si_signo in STOP_SIGNALS and received.si_code == BY_KERNEL)
