"""The guest server: its listeners, its one-second tick and its shutdown."""

import asyncio
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

from forewarn.clock import SystemClock
from forewarn.core.vm import Address
from forewarn.fleet.guest_port import GuestFleet
from forewarn.guest.connection import Connection
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.identity import AddressResolver, CallerResolver, FixedVmResolver, Peer
from forewarn.guest.limits import Limits
from forewarn.guest.observer import Observer
from forewarn.guest.recorder import RequestRecorder
from forewarn.guest.server_state import ServerState
from forewarn.guest.session import HttpSession
from forewarn.guest.shared_port import NO_VM_NAMED, SharedPortSession, UnknownVmResolver, vm_path
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.preview import ResponsePreview, preview_error

ACCEPT_QUEUE = 1024
KEEP_SOCKET_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Python 3.13 and newer would remove the file by the temporary name to which the socket was bound."""

PEER_CREDENTIALS = struct.Struct("3i")
"""The process id, user id and group id of a peer: `struct ucred` of unix(7)."""

MIN_TICK = 0.5
"""A timer that fires this many seconds early still counts as one tick."""


class GuestServer:
    """Serves guests on any number of listeners, which share one set of limits."""

    def __init__(
        self,
        fleet: GuestFleet,
        *,
        limits: Limits,
        unsupported_version_status: int = 404,
        enable_delay: timedelta = timedelta(0),
        counters: Counters | None = None,
        faults: Faults | None = None,
        observer: Observer | None = None,
        recorder: RequestRecorder | None = None,
    ) -> None:
        self.counters = counters if counters is not None else Counters()
        self._replica = fleet.replica
        self._state = ServerState(
            fleet,
            limits,
            self.counters,
            unsupported_version_status=unsupported_version_status,
            enable_delay=enable_delay,
            faults=faults,
            observer=observer,
            recorder=recorder,
        )
        self._listeners: dict[tuple[str, int] | Path, asyncio.Server] = {}
        self._tick_timer: asyncio.TimerHandle | None = None

    async def listen_for_vm(self, vm: str, host: str, port: int) -> int:
        """Listen for one VM (`scope/name`) and return the port; port 0 lets the system choose one."""
        return await self._listen(self._resolver_for(vm), host, port)

    async def listen_for_all(self, host: str, port: int) -> int:
        """Listen for all VMs, which name themselves in the path of each request; return the port."""
        return await self._listen(
            UnknownVmResolver(NO_VM_NAMED), host, port, session_type=partial(SharedPortSession, replica=self._replica)
        )

    def vm_path(self, scope: str, vm: str) -> str:
        """Return the path that names a VM there."""
        return vm_path(self._replica, scope, vm)

    async def listen_on_unix_socket(self, vm: str, path: Path) -> None:
        """Listen for one VM on a Unix socket that only its owner can open; the file remains after closing.

        A program that runs as a VM is in a user namespace of its own, and is refused: it has its own endpoint.
        """
        loop = asyncio.get_running_loop()
        factory = partial(_LocalConnection, self._state, self._resolver_for(vm))
        self._add_listener(
            path,
            await loop.create_unix_server(factory, sock=_bind_to_path(path), backlog=ACCEPT_QUEUE, **KEEP_SOCKET_FILE),
        )

    async def listen_by_address(self, network: str, host: str, port: int, *, interface: str | None = None) -> int:
        """Listen for all VMs of a network, identified by source address; return the port.

        With `interface`, only connections on it are accepted, so that other networks cannot impersonate a VM.
        """
        return await self._listen(AddressResolver(self._replica, network), host, port, interface)

    def preview(self, vm: str, *, address: Address | None = None) -> ResponsePreview:
        """Return what the VM (`scope/name`) gets if it polls now: at a listener of its own, or from the address.

        This is no request: it does not enable the scope, is not counted, and no fault is used up.
        """
        if address is None:
            caller = self._resolver_for(vm).identify("")
        else:
            caller = AddressResolver(self._replica, address.network).identify(str(address.ip))
        return preview_error(caller) if isinstance(caller, ErrorResponse) else self._state.preview(caller)

    @property
    def is_listening(self) -> bool:
        """Whether all listeners accept connections."""
        return all(listener.is_serving() for listener in self._listeners.values())

    def set_request_rate(self, per_second: int | None) -> None:
        """Change the request limit per VM and second; None: unlimited."""
        self._state.set_request_rate(per_second)

    def stop_listening(self, host: str, port: int) -> None:
        """Stop accepting connections there; existing connections stay open."""
        listener = self._listeners.pop((host, port))
        self._state.count_listening_sockets(-len(listener.sockets))
        listener.close()

    async def aclose(self) -> None:
        """Stop accepting connections, answer pending requests, then close. Connections of slow peers are aborted."""
        for listener in self._listeners.values():
            listener.close()
        self._state.close()
        await self._state.wait_until_empty()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for listener in self._listeners.values():
            await listener.wait_closed()
        self._listeners.clear()

    def _resolver_for(self, vm: str) -> CallerResolver:
        view, found = self._replica.find(vm)
        return FixedVmResolver(view, found.name)

    async def _listen(
        self,
        resolver: CallerResolver,
        host: str,
        port: int,
        interface: str | None = None,
        session_type: Callable[[ServerState, Peer], HttpSession] = HttpSession,
    ) -> int:
        loop = asyncio.get_running_loop()
        factory = partial(Connection, self._state, resolver, session_type)
        if interface is None:
            listener = await loop.create_server(factory, host, port, backlog=ACCEPT_QUEUE)
        else:
            listening_socket = _bind_to_interface(interface, host, port)
            listener = await loop.create_server(factory, sock=listening_socket, backlog=ACCEPT_QUEUE)
        if not listener.sockets:  # asyncio returns an empty server if the system has no more sockets
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        bound: int = listener.sockets[0].getsockname()[1]
        self._add_listener((host, bound), listener)
        return bound

    def _add_listener(self, address: tuple[str, int] | Path, listener: asyncio.Server) -> None:
        self._listeners[address] = listener
        self._state.count_listening_sockets(len(listener.sockets))
        self._start_ticks()

    def _start_ticks(self) -> None:
        if self._tick_timer is None:
            self._schedule_tick()

    def _tick(self) -> None:
        self._schedule_tick()
        self._state.tick()

    def _schedule_tick(self) -> None:
        """Schedule the next tick, at the start of the next second, for all connections together."""
        left = 1 - SystemClock().now().microsecond / 1_000_000
        delay = left if left >= MIN_TICK else left + 1
        self._tick_timer = asyncio.get_running_loop().call_later(delay, self._tick)


class _LocalConnection(Connection):
    """A connection over a Unix socket, unless its peer is in another user namespace."""

    __slots__ = ("_is_refused",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._is_refused = _is_in_other_namespace(transport.get_extra_info("socket").fileno())
        if self._is_refused:
            self._transport = cast("asyncio.Transport", transport)
            self._transport.abort()
        else:
            super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_refused:
            super().connection_lost(error)


def _is_in_other_namespace(connection: int) -> bool:
    """Return whether the peer of a Unix socket is in another user namespace, as every sandboxed program is.

    A process of root cannot be examined by others; neither can one outside of this container (its pid is 0).
    """
    if sys.platform != "linux":
        return False
    with socket.socket(fileno=os.dup(connection)) as peer:
        pid, _, _ = PEER_CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
        )
    try:
        return pid != 0 and os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")
    except PermissionError:
        return False
    except OSError:  # it has already ended
        return True


def _bind_to_interface(interface: str, host: str, port: int) -> socket.socket:
    """Bind to an address on one interface only; otherwise Linux would accept connections to it on every interface."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as undo:
        listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        listener.bind((host, port))
        undo.pop_all()
        return listener


def _bind_to_path(path: Path) -> socket.socket:
    """Bind to a path of any length; an abandoned socket file is replaced."""
    if path.is_socket():
        path.unlink()
    with ExitStack() as undo:
        listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        undo.pop_all()
        return listener


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short alias of a path: a socket address has room for 107 bytes. Only on Linux."""
    if sys.platform != "linux":
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
