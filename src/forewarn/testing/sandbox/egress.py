"""Network egress of a sandbox (--net) through slirp4netns or pasta.

Neither lets the sandbox reach the host's loopback, where the endpoints of other VMs and the operator API are."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from forewarn.testing.sandbox.errors import EgressUnavailable
from forewarn.testing.sandbox.syscalls import die_with_parent

START_TIMEOUT = 30.0
"""How many seconds to wait until the program has set up the network."""

POLL_INTERVAL = 0.01
DEFAULT_ROUTES = frozenset({"00000000", "0" * 32})
"""The destination of a default route in /proc/net, for IPv4 and IPv6."""

IGNORED_OUTPUT = "Failed to send"
"""Pasta's harmless message that no system log takes its messages begins like this."""


class Egress(NamedTuple):
    """A program that provides egress; `connect` starts it for the network of a process until the context ends."""

    program: str
    nameserver: str
    connect: Callable[[int], AbstractContextManager[None]]


@contextmanager
def _slirp4netns(process: int) -> Iterator[None]:
    ready, ready_writer = os.pipe()
    try:
        options = ("--configure", "--mtu=65520", "--disable-host-loopback", f"--ready-fd={ready_writer}")
        with _run_egress(["slirp4netns", *options, str(process), "tap0"], (ready_writer,)) as program:
            os.close(ready_writer)
            if not os.read(ready, 1):
                raise program.failure()
            yield
    finally:
        os.close(ready)


@contextmanager
def _pasta(process: int) -> Iterator[None]:
    forwards_nothing = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")
    options = ("--foreground", "--config-net", "--quiet", *forwards_nothing, "--dns-forward", PASTA.nameserver)
    as_root = ("--runas", "0:0") if os.getuid() == 0 else ()  # by default it becomes nobody, which may not enter
    with _run_egress(["pasta", *options, *as_root, str(process)]) as program:
        end = time.monotonic() + START_TIMEOUT
        while not _is_connected(process):
            if program.process.poll() is not None or time.monotonic() > end:
                raise program.failure()
            time.sleep(POLL_INTERVAL)
        yield


SLIRP4NETNS = Egress("slirp4netns", "10.0.2.3", _slirp4netns)
PASTA = Egress("pasta", "169.254.1.1", _pasta)


def find_egress() -> Egress:
    """Return an installed egress program."""
    for egress in (SLIRP4NETNS, PASTA):
        if shutil.which(egress.program):
            return egress
    raise EgressUnavailable(
        "--net needs slirp4netns or pasta, and neither is installed: "
        "`sudo apt-get install slirp4netns` (or passt); without --net the program can reach only its endpoint"
    )


class _EgressProcess(NamedTuple):
    name: str
    process: "subprocess.Popen[bytes]"
    stderr: IO[bytes]

    def failure(self) -> EgressUnavailable:
        """Return the error with the program's own reason, after killing the program."""
        self.process.kill()
        self.process.wait()
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").splitlines()
        reason = "; ".join(line for line in lines if not line.startswith(IGNORED_OUTPUT))
        return EgressUnavailable(f"--net: {self.name} does not work here: {reason or 'it gave no reason'}")


@contextmanager
def _run_egress(command: list[str], files: Sequence[int] = ()) -> Iterator[_EgressProcess]:
    """Run a program until the context or this process ends."""
    # stderr is a file: a pipe that is not read would block a program that keeps writing.
    with (
        TemporaryFile() as stderr,
        subprocess.Popen(  # noqa: S603 - no part of the command comes from outside
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=files,
            preexec_fn=_detach,  # noqa: PLW1509 - there are no threads yet
        ) as process,
    ):
        try:
            yield _EgressProcess(command[0], process, stderr)
        finally:
            process.kill()


def _detach() -> None:
    os.setpgid(0, 0)  # Ctrl-C is meant for the command, which may need the network while it shuts down
    die_with_parent()


def _is_connected(process: int) -> bool:
    """Return whether the network of a process has a default route."""
    tables = (Path(f"/proc/{process}/net/{name}") for name in ("route", "ipv6_route"))
    routes = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    return any("lo" not in route and not DEFAULT_ROUTES.isdisjoint(route[:2]) for route in routes)
