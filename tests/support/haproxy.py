"""A real HAProxy process in front of web servers. It does not retry: clients see every failure behind it."""

import csv
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.processes import GUARD, wait_until

BACKEND = "web"
PROBE = "/serving"

CONFIGURATION = """\
global
    stats socket {socket} mode 600 level admin
    stats timeout 60s

defaults
    mode http
    retries 0
    timeout connect 60s
    timeout client 60s
    timeout server 60s

frontend front
    bind 127.0.0.1:{port}
    default_backend {backend}

backend {backend}
    balance roundrobin
    {check}
    default-server check inter 100ms fall 3 rise 1
{servers}
"""


class ServerStatus(NamedTuple):
    """A server's state in HAProxy."""

    status: str
    """UP, DOWN, DRAIN, MAINT …; only the first word of a longer status such as `UP 1/3`."""
    sessions: int
    """Number of requests in progress on the server."""


class Haproxy:
    """HAProxy, by its port and its runtime socket."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.socket = directory / "haproxy.sock"

    def server_statuses(self) -> dict[str, ServerStatus]:
        """Return the state of each server."""
        rows = csv.DictReader(self.run_command("show stat").removeprefix("# ").splitlines())
        return {
            row["svname"]: ServerStatus(row["status"].split()[0], int(row["scur"]))
            for row in rows
            if row["pxname"] == BACKEND and row["svname"] != "BACKEND"
        }

    def statuses(self, *servers: str) -> tuple[str, ...]:
        """Return the statuses of these servers."""
        standing = self.server_statuses()
        return tuple(standing[server].status for server in servers)

    def run_command(self, command: str) -> str:
        """Send a command to the runtime socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(GUARD)
            connection.connect(str(self.socket))
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()


def find_haproxy() -> str:
    """Return the path of HAProxy: Debian installs it outside an ordinary user's PATH."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/sbin")
    if found is None:
        pytest.skip("needs Debian's package haproxy; as root, `make test` installs it")
    return found


@contextmanager
def run_haproxy(
    directory: Path, port: int, servers: Mapping[str, int], *, probes: Mapping[str, int] | None = None
) -> Iterator[Haproxy]:
    """Run HAProxy in front of servers, given by their ports, while the context is open.

    A server is up if it accepts connections, or if its probe, on a separate port, answers 200.
    """
    balancer = Haproxy(directory, port)
    places = {name: f"127.0.0.1:{port}" for name, port in servers.items()}
    if probes is not None:
        places = {name: f"{place} port {probes[name]}" for name, place in places.items()}
    lines = "\n".join(f"    server {name} {place}" for name, place in places.items())
    configuration = directory / "haproxy.cfg"
    configuration.write_text(
        CONFIGURATION.format(
            socket=balancer.socket,
            port=port,
            backend=BACKEND,
            check="" if probes is None else f"option httpchk GET {PROBE}",
            servers=lines,
        ),
        encoding="utf-8",
    )
    with (directory / "haproxy.log").open("w") as log:
        process = subprocess.Popen([find_haproxy(), "-db", "-f", configuration], stdout=log, stderr=log)
    try:
        wait_until(lambda: is_listening(balancer.socket) or process.poll() is not None, "HAProxy to start")
        assert process.poll() is None, (directory / "haproxy.log").read_text()
        yield balancer
    finally:
        process.kill()
        process.wait(GUARD)


def is_listening(place: Path | int) -> bool:
    """Return whether a Unix socket or a port accepts connections."""
    family, address = (
        (socket.AF_UNIX, str(place)) if isinstance(place, Path) else (socket.AF_INET, ("127.0.0.1", place))
    )
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0
