"""Run any program as a VM without root: in its network namespace, 169.254.169.254:80 is that VM's guest endpoint."""

import os
import socket as socket_module
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import forewarn
from forewarn.testing.sandbox.errors import NamespacesUnavailable

__all__ = [
    "BOOT",
    "BOOTSTRAP",
    "File",
    "NamespacesUnavailable",
    "NotLinux",
    "run",
    "supervising",
    "supervisor_command",
    "unavailable_reason",
    "why_not",
]

File = int | IO[bytes] | None
"""Where a stream of a program comes from or goes to, as `subprocess` has it."""

BOOTSTRAP = """
import signal, sys
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path.insert(0, sys.argv.pop(1))
from forewarn.testing.sandbox.supervisor import main
main()
"""
"""How the supervisor begins. Ctrl-C ends it without a trace, unless it is ignored, as nohup has it."""


def run(
    command: Sequence[str],
    *,
    socket: Path,
    hostname: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: File = None,
    stdout: File = None,
    stderr: File = None,
    net: bool = False,
) -> "subprocess.Popen[bytes]":
    """Begin a command in a sandbox of its own, with the VM behind a unix socket at 169.254.169.254:80.

    What is returned is the command to whoever has it: signals go to it, and it ends with the command's exit code
    (128 and the signal's number if a signal ended it; 125 if no sandbox could be made, which stderr says why). If it
    is killed, nothing of the command is left.

    `socket` is in a directory that has nothing else than sockets, which is hidden from the command. `net`: with
    connectivity outside, by slirp4netns or pasta, but never to this machine's loopback.
    """
    return subprocess.Popen(  # noqa: S603 - this is what it is for
        supervisor_command(command, socket=socket, hostname=hostname, net=net),
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def unavailable_reason() -> str | None:
    """Tell why no program can be run as a VM here; None: it can."""
    if sys.platform != "linux":
        return str(NamespacesUnavailable(sys.platform))
    with TemporaryDirectory(prefix="forewarn-") as directory, socket_module.socket(socket_module.AF_UNIX) as listener:
        path = Path(directory) / "s"
        listener.bind(str(path))
        with run(["true"], socket=path, hostname="nobody", stderr=subprocess.PIPE) as trial:
            _, stderr = trial.communicate()
    return None if trial.returncode == 0 else stderr.decode(errors="replace").strip().removeprefix("forewarn: ")


def supervisor_command(command: Sequence[str], *, socket: Path, hostname: str, net: bool = False) -> list[str]:
    """Return the command that runs another one in a sandbox."""
    if not command:
        raise ValueError("there is no command to run")
    # Isolated: the environment is meant for the command, and may have settings for another Python. Nor does the
    # supervisor need anything that is installed, and it is there sooner without.
    bootstrap = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(Path(forewarn.__file__).parent.parent)]
    return [*bootstrap, str(socket.absolute()), hostname, "net" if net else "no-net", *map(os.fspath, command)]


# Earlier public names, kept as aliases.
BOOT = BOOTSTRAP
NotLinux = NamespacesUnavailable
supervising = supervisor_command
why_not = unavailable_reason
