"""Tests of a sandboxed program on a terminal: keys, Ctrl-C, Ctrl-Z and `fg` work as in any shell."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.testing import sandbox
from tests.testing.sandbox.vm_socket import GUARD, VmSocket

TAKE_TERMINAL = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execvp(sys.argv[1], sys.argv[1:])"
"""The first terminal that a session leader opens becomes its controlling terminal."""

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))  # a print within a print is an error
print("ready", sys.stdin.isatty(), flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
print("over", flush=True)
"""


COUNTING = """
import os, signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
signal.signal(signal.SIGRTMIN, lambda *_: os.write(1, b"told %d\\n" % len(told)))
signal.signal(signal.SIGHUP, lambda *_: os._exit(7))
print("ready", flush=True)
while True:
    time.sleep(0.1)  # signal.pause() could miss a signal that has just arrived
"""


class Shell:
    """An interactive shell on a new terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.seen = ""

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read the output until this text, and discard everything up to its end."""
        while text not in self.seen:
            ready, _, _ = select.select([self._terminal], [], [], GUARD)
            assert ready, f"{text!r} was not seen in {self.seen!r}"
            self.seen += os.read(self._terminal, 65_536).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]


@contextmanager
def interactive_shell() -> Iterator[Shell]:
    main, other = pty.openpty()
    attributes = termios.tcgetattr(other)
    attributes[3] &= ~termios.ECHO  # so that typed keys are not in the output
    termios.tcsetattr(other, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, "bash", "--norc", "--noprofile", "--noediting", "-i"],
        stdin=other,
        stdout=other,
        stderr=other,
        env={"PATH": os.environ["PATH"], "PS1": "$ ", "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(other)
    try:
        yield Shell(main)
    finally:
        process.kill()
        process.wait(GUARD)
        os.close(main)


@pytest.fixture
def shell(sandboxes: None) -> Iterator[Shell]:
    if shutil.which("bash") is None:
        pytest.skip("the program bash is missing: install bash")
    with interactive_shell() as made:
        yield made


def _typed(vm: VmSocket, *command: str) -> str:
    return shlex.join(sandbox.supervisor_command(command, socket=vm.path, hostname="web-0")) + "\n"


def _background(vm: VmSocket, program: str) -> str:
    return _typed(vm, sys.executable, "-c", program).rstrip("\n") + " &\n"


def test_program_gets_keys_and_job_control(vm: VmSocket, shell: Shell) -> None:
    shell.type(_typed(vm, sys.executable, "-c", PROGRAM))
    shell.wait_for("ready True")
    shell.type("\x03")
    shell.wait_for("interrupted")
    shell.type("one\n")
    shell.wait_for("heard one")
    assert "interrupted" not in shell.seen
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("echo the shell $((6 * 7))\n")
    shell.wait_for("the shell 42")
    shell.type("fg\n")
    shell.type("two\n")
    shell.wait_for("heard two")
    shell.type("\x04")
    shell.wait_for("over")
    shell.type("echo code $?\n")
    shell.wait_for("code 0")


def test_ctrl_c_ends_a_program_without_a_signal_handler(vm: VmSocket, shell: Shell) -> None:
    shell.type(_typed(vm, "sh", "-c", "echo ready; exec sleep 600"))
    shell.wait_for("ready")
    shell.type("\x03")
    shell.type("echo code $?\n")
    shell.wait_for("code 130")


def test_shell_inside_has_job_control_and_gives_the_terminal_back(vm: VmSocket, shell: Shell) -> None:
    shell.type(_typed(vm, "bash", "--norc", "--noprofile", "--noediting", "-i"))
    shell.type("hostname; cat\n")
    shell.wait_for("web-0")
    shell.type("word\n")
    shell.wait_for("word")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.type("\x04")
    shell.type("exit 5\n")
    shell.type("echo code $?; cat\n")
    shell.wait_for("code 5")
    shell.type("again\n")
    shell.wait_for("again")


def test_background_program_stops_on_read_and_continues_in_the_foreground(vm: VmSocket, shell: Shell) -> None:
    shell.type("set -b\n")
    shell.type(_background(vm, PROGRAM))
    shell.wait_for("ready True")
    shell.wait_for("Stopped")
    shell.type("echo the shell $((6 * 7))\n")
    shell.wait_for("the shell 42")
    shell.wait_for("$ ")
    shell.type("\x03")
    shell.wait_for("$ ")
    shell.type("fg\n")
    shell.type("one\n")
    shell.wait_for("heard one")
    shell.type("\x03")
    shell.wait_for("interrupted")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("bg\n")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.type("two\n")
    shell.wait_for("heard two")
    shell.type("\x04")
    shell.wait_for("over")
    shell.type("echo code $?\n")
    shell.wait_for("code 0")


@pytest.mark.parametrize("where", ["in the background", "in the foreground, then stopped"])
def test_signal_to_the_whole_job_is_delivered_once(vm: VmSocket, shell: Shell, where: str) -> None:
    """The shell's `kill %1` signals the process group, which includes the supervisor."""
    if where == "in the background":
        shell.type(_background(vm, COUNTING))
        shell.wait_for("ready")
    else:
        shell.type(_typed(vm, sys.executable, "-c", COUNTING))
        shell.wait_for("ready")
        shell.type("\x1a")
        shell.wait_for("Stopped")
        shell.type("bg\n")
    for count in (1, 2):
        shell.type("kill %1\n")
        # Only to the supervisor, after the signals that it has received before.
        shell.type("kill -RTMIN $(jobs -p %1)\n")
        shell.wait_for(f"told {count}")
    shell.type("kill -HUP %1; wait %1; echo code $?\n")
    shell.wait_for("code 7")


def test_terminal_stays_with_the_shell_after_a_background_program_ends(vm: VmSocket, shell: Shell) -> None:
    shell.type(_typed(vm, sys.executable, "-c", COUNTING))
    shell.wait_for("ready")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("bg\n")
    shell.type("kill -HUP %1; wait %1; echo code $?; cat\n")
    shell.wait_for("code 7")
    shell.type("word\n")
    shell.wait_for("word")


def test_program_gets_sighup_when_its_terminal_closes(vm: VmSocket, sandboxes: None, tmp_path: Path) -> None:
    """The kernel signals only the session leader, and `ssh -t` starts a command as session leader."""
    told = tmp_path / "told"
    script = f"""
import os, signal, time
def tell(*_):
    open({str(told)!r}, "w").close()
    os._exit(0)
signal.signal(signal.SIGHUP, tell)
print("ready", flush=True)
while True:
    time.sleep(0.1)  # signal.pause() could miss a signal that has just arrived
"""
    main, other = pty.openpty()
    command = sandbox.supervisor_command([sys.executable, "-c", script], socket=vm.path, hostname="web-0")
    with subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *command], stdin=other, stdout=other, stderr=other, start_new_session=True
    ) as process:
        os.close(other)
        Shell(main).wait_for("ready\r\n")  # otherwise the program could fail to write the rest
        os.close(main)
        code = process.wait(GUARD)
    assert (code, told.exists()) == (0, True)
