"""Signals and the terminal: what is sent to the supervisor is meant for the command."""

import os
import signal
import threading
from contextlib import suppress

ABOUT_OURSELVES = frozenset(
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

SENT_ON = frozenset(signal.valid_signals()) - ABOUT_OURSELVES
BY_KERNEL = 0x80


class Terminal:
    """The terminal that the supervisor was started from, if there is one."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        self.is_ours = self._file is not None and self._foreground() == os.getpgrp()
        """Whether what is typed there is for the process group of the supervisor."""

    def take_back(self) -> None:
        """Have the terminal again that a shell inside took for itself, and could not give back."""
        if self._file is not None and self.is_ours:
            with suppress(OSError):
                os.tcsetpgrp(self._file, os.getpgrp())

    def _foreground(self) -> int | None:
        if self._file is not None:
            with suppress(OSError):
                return os.tcgetpgrp(self._file)
        return None


def hold_back() -> None:
    """Let no signal hit the supervisor from now on; they wait until there is a command that they are for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SENT_ON)


def send_on(command: int, *, shares_group: bool) -> None:
    """Send signals on to a command, known by its pidfd, those too that were held back.

    One that shares the supervisor's process group has got already what the terminal sends.
    """
    threading.Thread(target=_send_on, args=(command, shares_group), name="signals", daemon=True).start()


def _send_on(command: int, shares_group: bool) -> None:
    while True:
        came = signal.sigwaitinfo(SENT_ON)
        is_known = (shares_group and came.si_code == BY_KERNEL) or _is_inside(came.si_pid)
        if not is_known:
            with suppress(OSError):
                signal.pidfd_send_signal(command, came.si_signo)


def _is_inside(process: int) -> bool:
    """Tell whether a process is in the sandbox: what it sends to its whole group is not sent to it once more."""
    return _depth(process) > _depth(os.getpid())


def _depth(process: int) -> int:
    """Return in how many process namespaces a process is."""
    with suppress(OSError), open(f"/proc/{process}/status", "rb") as status:  # noqa: PTH123 - as short as it can be
        for line in status:
            if line.startswith(b"NSpid:"):
                return len(line.split()) - 1
    return 0
