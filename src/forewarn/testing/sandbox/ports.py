"""Ports of this machine's loopback that a program in a sandbox may reach, and additional ports of its endpoint."""

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.testing.sandbox.errors import PortRefused

LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535
MAX_PORTS = 64
PROBE_TIMEOUT = 5.0
"""How many seconds a service has to answer, in which nothing else happens."""

_LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""
_PROBE = b"GET /metadata/versions HTTP/1.0\r\nMetadata: true\r\n\r\n"
_GUEST_ENDPOINT = re.compile(rb"^Server: IMDS/", re.MULTILINE | re.IGNORECASE)


def parse_ports(text: str) -> tuple[int, ...]:
    """Parse ports with commas between them; raise ValueError with the reason."""
    ports = tuple(dict.fromkeys(_port(part.strip()) for part in text.split(",")))
    if len(ports) > MAX_PORTS:
        raise ValueError(f"{len(ports)} ports: at most {MAX_PORTS} are allowed")
    return ports


def parse_listener(text: str) -> tuple[str, int]:
    """Parse a loopback address and a port, such as 127.0.0.1:80; raise ValueError with the reason."""
    host, colon, port = text.rpartition(":")
    host = LOOPBACK if host.lower() == "localhost" else host
    with suppress(ValueError):
        if colon and IPv4Address(host).is_loopback:
            return host, _port(port)
    raise ValueError(f"{text!r} is not a loopback address with a port, such as {LOOPBACK}:80")


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PORT)) and 1 <= int(text) <= MAX_PORT:
        return int(text)
    raise ValueError(f"{text!r} is not a port from 1 to {MAX_PORT}")


def check_reach(ports: Sequence[int], listeners: Sequence[tuple[str, int]] = ()) -> None:
    """Refuse ports of Forewarn's own services: a program could act as another VM, or as an operator."""
    if both := {port for _, port in listeners} & set(ports):
        raise PortRefused(min(both), "it cannot be both reached outside and served by the VM's endpoint")
    for port in ports:
        for service in _services_on(port):
            if _operator_port(service) == port:
                raise PortRefused(port, "it is the operator port of a Forewarn service")
            if _is_guest_endpoint(port):
                raise PortRefused(port, "it is the guest port of a VM of a Forewarn service")


def _services_on(port: int) -> Iterator[Path]:
    """Yield `service.json` of each Forewarn service of this user whose process listens on the port."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            files = [str(file.readlink()) for file in (process / "fd").iterdir()]
            if not sockets.isdisjoint(files):
                yield from (Path(file) for file in files if file.endswith("/service.json"))


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    yield inode


def _operator_port(service: Path) -> int | None:
    with suppress(OSError, ValueError, KeyError):
        return urlsplit(str(json.loads(service.read_text())["operator_url"])).port
    return None


def _is_guest_endpoint(port: int) -> bool:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), PROBE_TIMEOUT) as connection:
        connection.sendall(_PROBE)
        return _GUEST_ENDPOINT.search(connection.recv(4096)) is not None
    return False
