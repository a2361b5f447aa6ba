"""The way out of a sandbox, where one is wanted: a program that carries packets between its network and the host's.

None of them lets the sandbox reach the loopback of the host, where the endpoints of other VMs and the operator API are.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from forewarn.testing.sandbox.errors import NoWayOut
from forewarn.testing.sandbox.system import die_with_parent

GUARD = 30.0
"""After how many seconds a program that does not begin its work is given up."""

PAUSE = 0.01
ANYWHERE = frozenset({"00000000", "0" * 32})
"""The destination of a default route, as the kernel writes it."""

NO_LOG = "Failed to send"
"""How pasta begins to complain that nobody takes its log, which is no matter."""


class WayOut(NamedTuple):
    """A program that connects; `connecting` does it for the network of a process, as long as the context lasts."""

    program: str
    nameserver: str
    connecting: Callable[[int], AbstractContextManager[None]]


@contextmanager
def _slirp4netns(process: int) -> Iterator[None]:
    ready, say_ready = os.pipe()
    try:
        options = ("--configure", "--mtu=65520", "--disable-host-loopback", f"--ready-fd={say_ready}")
        with _running(["slirp4netns", *options, str(process), "tap0"], (say_ready,)) as program:
            os.close(say_ready)
            if not os.read(ready, 1):
                raise program.useless()
            yield
    finally:
        os.close(ready)


@contextmanager
def _pasta(process: int) -> Iterator[None]:
    forwards_nothing = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")
    options = ("--foreground", "--config-net", "--quiet", *forwards_nothing, "--dns-forward", PASTA.nameserver)
    as_root = ("--runas", "0:0") if os.getuid() == 0 else ()  # it would become nobody, who cannot enter
    with _running(["pasta", *options, *as_root, str(process)]) as program:
        end = time.monotonic() + GUARD
        while not _is_connected(process):
            if program.process.poll() is not None or time.monotonic() > end:
                raise program.useless()
            time.sleep(PAUSE)
        yield


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


class _Program(NamedTuple):
    name: str
    process: "subprocess.Popen[bytes]"
    said: IO[bytes]

    def useless(self) -> NoWayOut:
        """Say why it did not do its work."""
        self.process.kill()
        self.process.wait()
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").splitlines()
        why = "; ".join(line for line in lines if not line.startswith(NO_LOG))
        return NoWayOut(f"--net: {self.name} does not work here: {why or 'it does not say why'}")


@contextmanager
def _running(command: list[str], files: Sequence[int] = ()) -> Iterator[_Program]:
    """Run a program as long as the context lasts, and not longer than we live."""
    # What it says goes to a file: it may go on saying something, and nobody reads it then.
    with (
        TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603 - nothing of it comes from elsewhere
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=files,
            preexec_fn=_on_its_own,  # noqa: PLW1509 - there are no threads yet
        ) as process,
    ):
        try:
            yield _Program(command[0], process, said)
        finally:
            process.kill()


def _on_its_own() -> None:
    os.setpgid(0, 0)  # Ctrl-C is meant for the command, which may want the network for its farewell
    die_with_parent()


def _is_connected(process: int) -> bool:
    """Tell whether a process has a way to anywhere."""
    tables = (Path(f"/proc/{process}/net/{name}") for name in ("route", "ipv6_route"))
    routes = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    return any("lo" not in route and not ANYWHERE.isdisjoint(route[:2]) for route in routes)
