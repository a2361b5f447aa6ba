"""The way out of a sandbox, where one is wanted: a program that carries packets between its network and the host's.

None of them lets the sandbox reach the loopback of the host, where the endpoints of other VMs and the operator API are.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from forewarn.testing.sandbox.errors import NoWayOut
from forewarn.testing.sandbox.system import die_with_parent

GUARD = 30.0
"""After how many seconds a program that does not begin its work is given up."""


class WayOut(NamedTuple):
    """A program that connects; `connecting` does it for the network of a process, as long as the context lasts."""

    program: str
    nameserver: str
    connecting: Callable[[int], AbstractContextManager[None]]


@contextmanager
def _slirp4netns(process: int) -> Iterator[None]:
    ready, say_ready = os.pipe()
    ended, keep_open = os.pipe()
    options = ("--configure", "--mtu=65520", "--disable-host-loopback")
    command = ["slirp4netns", *options, f"--exit-fd={ended}", f"--ready-fd={say_ready}", str(process), "tap0"]
    with subprocess.Popen(  # noqa: S603 - nothing of it comes from elsewhere
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(ended, say_ready),
        preexec_fn=_on_its_own,  # noqa: PLW1509 - there are no threads yet
    ) as program:
        os.close(say_ready)
        os.close(ended)
        try:
            if not os.read(ready, 1):
                raise NoWayOut(f"--net: slirp4netns does not work here: {_complaint(program)}")
            yield
        finally:
            os.close(ready)
            os.close(keep_open)
            program.kill()


@contextmanager
def _pasta(process: int) -> Iterator[None]:
    forwards_nothing = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")
    with TemporaryDirectory(prefix="forewarn-") as directory:
        number = Path(directory) / "pid"
        options = ("--config-net", "--quiet", *forwards_nothing, "--dns-forward", PASTA.nameserver, "-P", str(number))
        as_who = ("--runas", f"{os.getuid()}:{os.getgid()}") if os.getuid() == 0 else ()
        command = ["pasta", *options, *as_who, str(process)]
        done = subprocess.run(  # noqa: S603 - nothing of it comes from elsewhere
            command,  # it goes on in the background as soon as it works
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=GUARD,
        )
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise NoWayOut(f"--net: pasta does not work here: {why}")
        try:
            yield
        finally:
            with suppress(OSError, ValueError):
                os.kill(int(number.read_text()), 15)


SLIRP4NETNS = WayOut("slirp4netns", "10.0.2.3", _slirp4netns)
PASTA = WayOut("pasta", "169.254.1.1", _pasta)


def choose() -> WayOut:
    """Return a program that is there."""
    for way in (SLIRP4NETNS, PASTA):
        if shutil.which(way.program):
            return way
    raise NoWayOut(
        "--net needs slirp4netns or pasta, and neither is installed: "
        "`sudo apt-get install slirp4netns` (or passt); without --net the program reaches its endpoint alone"
    )


def _on_its_own() -> None:
    os.setpgid(0, 0)  # Ctrl-C is meant for the command, which may want the network for its farewell
    die_with_parent()


def _complaint(program: "subprocess.Popen[bytes]") -> str:
    said = program.stderr.read() if program.stderr is not None else b""
    return said.decode(errors="replace").strip().replace("\n", "; ") or f"it ended with {program.wait()}"
