"""DHCP client sockets: broadcast a DHCPDISCOVER from port 68 on each network interface and collect the offers."""

import os
import selectors
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import msgspec

from forewarn.client.dhcp import DhcpResponse, build_discover, parse_offer

CLIENT_PORT = 68
SERVER_PORT = 67
BROADCAST_ADDRESS = "255.255.255.255"
LONGEST_PACKET = 4096
"""How much of a datagram is read. By default, a server sends at most 576 bytes."""

BIND_TO_DEVICE: int | None = getattr(socket, "SO_BINDTODEVICE", None)
"""The socket option that binds to an interface; None where the system does not have it (most except Linux)."""

_INTERFACES = Path("/sys/class/net")
_ETHERNET = "1"
_IS_UP = 0x1
_IS_RANDOM = 1 << 40
"""The bit that `uuid.getnode` sets in a random address."""


class Interface(msgspec.Struct, frozen=True):
    """A network interface for DHCP requests. With an empty name, the system chooses one."""

    name: str
    mac: bytes

    def __str__(self) -> str:
        return self.name or "this machine's network"


def active_interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that are up. Only on Linux can a program choose one; elsewhere there is at most one."""
    if BIND_TO_DEVICE is not None:
        found = (_read_interface(_INTERFACES / name) for _, name in socket.if_nameindex())
        return tuple(interface for interface in found if interface is not None)
    node = uuid.getnode()
    return () if node & _IS_RANDOM else (Interface("", node.to_bytes(6, "big")),)


def _read_interface(directory: Path) -> Interface | None:
    """Return an interface, or None if it is down, not Ethernet, or has just been removed."""
    try:
        type_, flags, address = ((directory / fact).read_text().strip() for fact in ("type", "flags", "address"))
    except OSError:
        return None
    if type_ != _ETHERNET or not int(flags, 16) & _IS_UP:
        return None
    return Interface(directory.name, bytes.fromhex(address.replace(":", "")))


class DhcpSocket:
    """A DHCP client's sockets, one per interface. The constructor raises OSError without permission."""

    def __init__(self, interfaces: Iterable[Interface]) -> None:
        with ExitStack() as stack:
            self._sockets = [(stack.enter_context(_bound_socket(each)), each.mac) for each in interfaces]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sockets."""
        self._stack.close()

    def discover(self, timeout: float) -> Iterator[DhcpResponse]:
        """Send a DHCPDISCOVER on every interface, and yield the offers that arrive within `timeout` seconds."""
        transaction = os.urandom(4)
        with selectors.DefaultSelector() as selector:
            for bound, mac in self._sockets:
                _send(bound, build_discover(transaction, mac))
                selector.register(bound, selectors.EVENT_READ, (bound, mac))
            until = time.monotonic() + timeout
            while (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    bound, mac = key.data
                    offer = parse_offer(_receive(bound), transaction, mac)
                    if offer is not None:
                        yield offer


def _bound_socket(interface: Interface) -> socket.socket:
    with ExitStack() as stack:
        bound = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        # The system's DHCP client may use the port too; both receive the broadcasts.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if BIND_TO_DEVICE is not None:
            bound.setsockopt(socket.SOL_SOCKET, BIND_TO_DEVICE, interface.name.encode())
        bound.bind(("", CLIENT_PORT))
        stack.pop_all()
        return bound


def _send(bound: socket.socket, packet: bytes) -> None:
    # An interface that has just gone down must not prevent requests on the others.
    with suppress(OSError):
        bound.sendto(packet, (BROADCAST_ADDRESS, SERVER_PORT))


def _receive(bound: socket.socket) -> bytes:
    """Return a packet; empty if the system discards it as damaged."""
    try:
        return bound.recv(LONGEST_PACKET)
    except OSError:
        return b""
