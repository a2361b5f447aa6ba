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
"""After how many seconds a program that does not begin its work is given up."""

POLL_INTERVAL = 0.01
DEFAULT_ROUTES = frozenset({"00000000", "0" * 32})
"""The destination of a default route, as the kernel writes it."""

IGNORED_OUTPUT = "Failed to send"
"""How pasta begins to complain that nobody takes its log, which is no matter."""


class Egress(NamedTuple):
    """A program that connects; `connect` does it for the network of a process, as long as the context lasts."""

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
    as_root = ("--runas", "0:0") if os.getuid() == 0 else ()  # it would become nobody, who cannot enter
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
    """Return a program that is there."""
    for egress in (SLIRP4NETNS, PASTA):
        if shutil.which(egress.program):
            return egress
    raise EgressUnavailable(
        "--net needs slirp4netns or pasta, and neither is installed: "
        "`sudo apt-get install slirp4netns` (or passt); without --net the program reaches its endpoint alone"
    )


class _EgressProcess(NamedTuple):
    name: str
    process: "subprocess.Popen[bytes]"
    stderr: IO[bytes]

    def failure(self) -> EgressUnavailable:
        """Say why it did not do its work."""
        self.process.kill()
        self.process.wait()
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").splitlines()
        reason = "; ".join(line for line in lines if not line.startswith(IGNORED_OUTPUT))
        return EgressUnavailable(f"--net: {self.name} does not work here: {reason or 'it does not say why'}")


@contextmanager
def _run_egress(command: list[str], files: Sequence[int] = ()) -> Iterator[_EgressProcess]:
    """Run a program as long as the context lasts, and not longer than we live."""
    # What it says goes to a file: it may go on saying something, and nobody reads it then.
    with (
        TemporaryFile() as stderr,
        subprocess.Popen(  # noqa: S603 - nothing of it comes from elsewhere
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
    os.setpgid(0, 0)  # Ctrl-C is meant for the command, which may want the network for its farewell
    die_with_parent()


def _is_connected(process: int) -> bool:
    """Tell whether a process has a way to anywhere."""
    tables = (Path(f"/proc/{process}/net/{name}") for name in ("route", "ipv6_route"))
    routes = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    return any("lo" not in route and not DEFAULT_ROUTES.isdisjoint(route[:2]) for route in routes)
