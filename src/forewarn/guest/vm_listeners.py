"""Listeners for one VM each: a TCP port per VM, assigned once and saved, and Unix sockets opened on demand."""

import asyncio
import errno
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2s
from itertools import chain
from pathlib import Path

from forewarn.core.backoff import backoff
from forewarn.core.base_error import BaseError
from forewarn.core.errors import CoreError
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Vm
from forewarn.fleet.errors import FleetError, ScopeNotFound, VmNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.guest_port import GuestFleet
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scopes import ScopeChange
from forewarn.guest.limits import SPARE_FILES, file_limit
from forewarn.guest.server import GuestServer
from forewarn.settings.types import ListenAddress, local_address

log = logging.getLogger(__name__)

HIGHEST_PORT = 65_535
FREE_PORT_RANGE = range(20_000, 30_000)
"""The range of "any free port". Systems use higher ports for outgoing connections, so a higher port that is free now
and becomes the permanent port of a VM could be in use later."""

KEPT_PORT_ADVICE = "use another data directory, because a VM keeps its port"
CHOOSE_PORT_ADVICE = "choose another first port for VMs with --listen HOST:PORT (port 0: any free ports)"


LISTEN_ERROR_TEXT = {
    errno.EADDRINUSE: "already in use by another program; stop that program, or",
    errno.EACCES: "ports below 1024 need root;",
}


class ListenFailed(BaseError):
    """The system does not let this process listen, usually because another program uses the port."""

    template = "{what}: cannot listen on {address}: {why} {advice}"
    host: str
    port: int
    what: str
    error: OSError
    advice: str
    is_own: bool = False
    """Whether the operator API of this service uses the port."""

    @property
    def address(self) -> str:
        """Host and port, with an IPv6 address in brackets."""
        return str(ListenAddress(self.host, self.port))

    @property
    def why(self) -> str:
        """The reason, up to the advice."""
        if self.is_own:
            return "already in use by this service's operator API; move that with --operator HOST:PORT, or"
        return LISTEN_ERROR_TEXT.get(self.error.errno or 0, f"{self.error.strerror};")


class PortUnavailable(BaseError):
    """There are more VMs than ports."""

    template = (
        "not enough ports from {first} on for all VMs; start at a lower port, "
        "or use no ports (--listen none) and identify VMs by their addresses"
    )
    first: int


class TooManyListeners(BaseError):
    """The process may not open a listener for every VM."""

    template = (
        "{vms} VMs need one listener each, but the system allows {files} open files; raise that limit (ulimit -n), "
        "or use no ports (--listen none) and identify VMs by their addresses"
    )
    vms: int
    files: int


LISTEN_ERRORS = (ListenFailed, PortUnavailable, TooManyListeners, FleetError, CoreError)
"""Errors that can prevent a listener for a new VM; most are temporary."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""First and longest pause, in seconds, before another attempt to listen for a VM."""

ALL = ""
"""Stands for all VMs without a listener in `VmPortListeners.failures`."""


class VmPortListeners:
    """One listener per VM, for existing and for new VMs.

    The port of a removed VM stays open and answers 403, unless its open file is needed for another VM.
    """

    def __init__(
        self,
        fleet: GuestFleet,
        server: GuestServer,
        host: str,
        first: int,
        operator_port: int | None = None,
        *,
        vms_on: str | None = None,
    ) -> None:
        """`first` is the first port of VMs (0: any free ports). `operator_port` is never assigned to a VM.

        With `vms_on`, only the VMs on this host have ports; that of a VM that leaves the host is closed.
        """
        self._vms_on = vms_on
        self._fleet = fleet
        self._server = server
        self._host = host
        self._first = first
        self._operator_port = operator_port
        self._open: dict[str, int] = {}
        self._changed: set[str] = set()
        self._has_changed = asyncio.Event()
        self.failures: dict[str, str] = {}
        """Why VMs (`scope/name`) have no listener; the empty name stands for all new VMs. They are retried."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen for all existing VMs, and for new ones while the context is open.

        A VM whose port is in use is retried; if that holds for all of them, raise the error of the first.
        """
        self._fleet.scopes.roster_observers.append(self.observe)
        await self._open_all(self._vm_names(self._fleet.replica.views()))
        async with tasks_until_exit() as tasks:
            tasks.create_task(self._open_for_changes(), name="ports for new VMs")
            yield

    def url(self, scope: str, vm: str) -> str | None:
        """Return the URL of a VM's endpoint."""
        port = self._open.get(f"{scope}/{vm}")
        if port is None:
            return None
        return f"http://{local_address(self._host, port)}"

    def observe(self, change: ScopeChange) -> None:
        """Note a scope that has a VM without a port, and close the ports of VMs that have left the host."""
        roster = change.after.roster if change.after is not None else ()
        if any(f"{change.id}/{vm.name}" not in self._open for vm in roster if self._has_port(vm)):
            self._changed.add(change.id)
            self._has_changed.set()
        if self._vms_on is not None and change.before is not None:
            staying = {vm.name for vm in roster if self._has_port(vm)}
            for vm in change.before.roster:
                port = self._open.pop(f"{change.id}/{vm.name}", None) if vm.name not in staying else None
                if port is not None:
                    self._server.stop_listening(self._host, port)

    def _has_port(self, vm: Vm) -> bool:
        return self._vms_on is None or vm.host == self._vms_on

    async def _open_for_changes(self) -> None:
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        pause: float | None = next(pauses) if self.failures else None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._has_changed.wait()
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            views = [view for view in self._fleet.replica.views() if view.id in changed]
            await self._open_for_new(self._vm_names(views))
            if not self.failures:
                pauses, pause = backoff(FIRST_PAUSE, LONGEST_PAUSE), None
            else:
                self._changed |= changed
                pause = next(pauses)

    async def _open_all(self, names: Iterable[str]) -> None:
        """Listen for the VMs that exist at the start. A saved port that is in use does not affect the other VMs."""
        new, free = self._vms_without_port(names), self._free_ports()
        busy: dict[str, ListenFailed] = {}
        async with self._save_ports() as opened:
            for name in new:
                try:
                    # A busy first port is a mistake that the caller should hear of; a later one is not worth that.
                    opened[name] = await self._listen(name, free, skip_busy=self._first == 0 or bool(opened))
                except ListenFailed as error:
                    if error.is_own or error.error.errno != errno.EADDRINUSE or name not in self._fleet.ports.assigned:
                        raise
                    busy[name] = error
            if busy and not opened:
                raise next(iter(busy.values()))
        for name, failure in busy.items():
            self._changed.add(name.partition("/")[0])
            self._note_failure(name, failure)

    async def _open_for_new(self, names: Iterable[str]) -> None:
        """Listen for new VMs. An error for one VM does not affect others; `failures` has what failed."""
        before, failed = set(self.failures), set[str]()
        try:
            new, free = self._vms_without_port(names), self._free_ports()
            async with self._save_ports() as opened:
                for name in new:
                    try:
                        opened[name] = await self._listen(name, free, skip_busy=True)
                    except (ScopeNotFound, VmNotFound):
                        log.info("VM %s was removed before it had a guest port", name)
                    except LISTEN_ERRORS as error:
                        failed.add(name)
                        self._note_failure(name, error)
        except LISTEN_ERRORS as error:
            failed |= before | {ALL}
            self._note_failure(ALL, error)
        for name in before - failed:
            del self.failures[name]
            if (port := self._open.get(name)) is not None:
                log.warning("VM %s has its guest port again: %s", name, ListenAddress(self._host, port))

    def _note_failure(self, name: str, error: Exception) -> None:
        """Note why a VM has no listener, and log it once."""
        if self.failures.get(name) != str(error):
            log.error("cannot open a guest port, retrying: %s", error)
        self.failures[name] = str(error)

    @asynccontextmanager
    async def _save_ports(self) -> AsyncIterator[dict[str, int]]:
        """Collect the ports of new listeners, then save them; if saving fails, close those listeners.

        Listening comes first: a port that is in use must not be assigned permanently.
        """
        opened: dict[str, int] = {}
        try:
            yield opened
            if opened:
                await self._fleet.ports.assign(opened)
        except BaseException:
            for port in opened.values():
                self._server.stop_listening(self._host, port)
            raise
        self._open.update(opened)

    def _vms_without_port(self, names: Iterable[str]) -> list[str]:
        """Return the VMs without a listener. Raises TooManyListeners if the limit of open files is too low."""
        new = [name for name in names if name not in self._open]
        excess = _excess_listeners(len(self._open) + len(new))
        if new and excess:
            self._close_removed(excess)
            if _excess_listeners(listeners := len(self._open) + len(new)):
                raise TooManyListeners(listeners, file_limit())
        return new

    def _close_removed(self, limit: int) -> None:
        """Close the listeners of removed VMs, if their open files are needed for others."""
        present = set(self._vm_names(self._fleet.replica.views()))
        for name in [name for name in self._open if name not in present][:limit]:
            self._server.stop_listening(self._host, self._open.pop(name))

    def _vm_names(self, views: Iterable[ScopeView]) -> list[str]:
        """Return the VMs of these scopes that have ports as `scope/name`, by scope and in natural sort order."""
        ordered = sorted(views, key=lambda view: view.id)
        vms = ((view, vm) for view in ordered for vm in sorted(view.roster or (), key=_sort_key))
        return [f"{view.id}/{vm.name}" for view, vm in vms if self._has_port(vm)]

    async def _listen(self, name: str, free: Iterable[int], *, skip_busy: bool) -> int:
        """Listen for a VM on its assigned port, else on a free one."""
        kept = self._fleet.ports.assigned.get(name)
        for port in free if kept is None else (kept,):
            try:
                return await self._server.listen_for_vm(name, self._host, port)
            except OSError as error:
                if kept is not None or not skip_busy or error.errno != errno.EADDRINUSE:
                    advice = CHOOSE_PORT_ADVICE if kept is None else KEPT_PORT_ADVICE
                    is_own = port == self._operator_port and error.errno == errno.EADDRINUSE
                    raise ListenFailed(self._host, port, f"VM {name}", error, advice, is_own) from error
        raise PortUnavailable(self._first)

    def _free_ports(self) -> Iterator[int]:
        """Yield the ports that were never assigned to a VM and that the operator API does not use."""
        taken = {*self._fleet.ports.assigned.values(), self._operator_port}
        return (port for port in self._port_range() if port not in taken)

    def _port_range(self) -> Iterable[int]:
        if self._first:
            return range(self._first, HIGHEST_PORT + 1)
        begin = secrets.randbelow(len(FREE_PORT_RANGE))
        return chain(FREE_PORT_RANGE[begin:], FREE_PORT_RANGE[:begin], range(FREE_PORT_RANGE.stop, HIGHEST_PORT + 1))


def _excess_listeners(listeners: int) -> int:
    """Return the number of listeners over the limit: a VM needs open files for its listener and one connection."""
    return max(0, listeners - (file_limit() - SPARE_FILES) // 2)


def _sort_key(vm: Vm) -> tuple[list[str | int], str]:
    return natural_sort_key(vm.name)


class VmSocketListeners:
    """Unix sockets, one per VM, in a directory that only its owner can enter and only one service may use.

    Every process that can open a socket counts as the VM, so other users of the machine must not see it. The directory
    is never removed: the sandbox of a program that runs as a VM hides it, and would not hide a new directory.
    """

    def __init__(self, replica: Replica, server: GuestServer, directory: Path) -> None:
        self._replica = replica
        self._server = server
        self._directory = directory
        self._open: set[Path] = set()
        self._lock = asyncio.Lock()

    async def reopen(self) -> None:
        """Listen on the sockets of an earlier service: programs that run as a VM wait for them."""
        if self._directory.is_symlink():  # not ours, possibly an attack
            self._directory.unlink()
        existing = set(self._directory.glob("*.sock"))
        for vm in self._vms() if existing else ():
            if (path := self._path(vm)) in existing:
                existing.remove(path)
                await self._reopen_vm(vm)
        for path in existing:
            path.unlink()

    async def open(self, vm: str) -> Path:
        """Listen for a VM (`scope/name`), unless that has been done, and return the path of the socket."""
        path = self._path(vm)
        async with self._lock:
            if path not in self._open:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                await self._server.listen_on_unix_socket(vm, path)
                self._open.add(path)
        return path

    async def _reopen_vm(self, vm: str) -> None:
        try:
            await self.open(vm)
        except OSError as error:  # for example too many open files: the service starts nevertheless
            log.warning("cannot reopen the socket of VM %s: %s", vm, error.strerror)

    def _vms(self) -> list[str]:
        return [f"{view.id}/{vm.name}" for view in self._replica.views() for vm in view.roster or ()]

    def _path(self, vm: str) -> Path:
        return self._directory / f"{blake2s(vm.encode(), digest_size=8).hexdigest()}.sock"
