"""Run any program as a VM without root: in its network namespace, 169.254.169.254:80 is that VM's guest endpoint."""

import json
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
"""A standard stream of a program, as in `subprocess`."""

BOOTSTRAP = """
import signal, sys
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path.insert(0, sys.argv.pop(1))
from forewarn.testing.sandbox.supervisor import main
main()
"""
"""Python code that starts the supervisor. Ctrl-C ends it without a traceback, unless it is ignored, as with nohup."""


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
    reach: Sequence[int] = (),
    listen_also: Sequence[tuple[str, int]] = (),
) -> "subprocess.Popen[bytes]":
    """Start a command in a new sandbox, in which 169.254.169.254:80 is the VM behind a Unix socket.

    The returned process stands for the command: it forwards signals to it, and ends with its exit code (128 plus the
    signal number if a signal ended it; 125 if the sandbox could not be created, with the reason on stderr). If the
    process is killed, the command and all its children are killed too.

    `socket` must be in a directory that contains only sockets; the directory is hidden from the command. `net` gives
    the command network access, through slirp4netns or pasta, but never to this machine's loopback. `reach` are ports of
    this machine's loopback that the command reaches at the same port of its own 127.0.0.1; ports of Forewarn services
    are refused. `listen_also` are more addresses at which the VM's endpoint answers inside, such as ("127.0.0.1", 80).
    """
    return subprocess.Popen(  # noqa: S603 - running the caller's command is the purpose
        supervisor_command(command, socket=socket, hostname=hostname, net=net, reach=reach, listen_also=listen_also),
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def unavailable_reason() -> str | None:
    """Return why programs cannot run as a VM on this system, or None if they can."""
    if sys.platform != "linux":
        return str(NamespacesUnavailable(sys.platform))
    with TemporaryDirectory(prefix="forewarn-") as directory, socket_module.socket(socket_module.AF_UNIX) as listener:
        path = Path(directory) / "s"
        listener.bind(str(path))
        with run(["true"], socket=path, hostname="nobody", stderr=subprocess.PIPE) as trial:
            _, stderr = trial.communicate()
    return None if trial.returncode == 0 else stderr.decode(errors="replace").strip().removeprefix("forewarn: ")


def supervisor_command(
    command: Sequence[str | os.PathLike[str]],
    *,
    socket: Path,
    hostname: str,
    net: bool = False,
    reach: Sequence[int] = (),
    listen_also: Sequence[tuple[str, int]] = (),
) -> list[str]:
    """Return the command line of a supervisor that runs the command in a sandbox."""
    if not command:
        raise ValueError("the command is empty")
    # Isolated mode: the environment is meant for the command and may configure another Python. Without site-packages,
    # which the supervisor does not need, it starts faster.
    bootstrap = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(Path(forewarn.__file__).parent.parent)]
    return [
        *bootstrap,
        str(socket.absolute()),
        hostname,
        json.dumps({"net": net, "reach": reach, "listen_also": listen_also}),
        *(os.fspath(part) for part in command),
    ]


# Earlier public names, kept as aliases.
BOOT = BOOTSTRAP
NotLinux = NamespacesUnavailable
supervising = supervisor_command
why_not = unavailable_reason
