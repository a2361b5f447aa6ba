"""Listeners for one VM each: a TCP port per VM, assigned once and saved, and Unix sockets opened on demand."""

import asyncio
import errno
import logging
import resource
import secrets
import sys
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
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import SPARE_FILES
from forewarn.guest.server import GuestServer

log = logging.getLogger(__name__)

HIGHEST_PORT = 65_535
FREE_PORT_RANGE = range(20_000, 30_000)
"""Where "any free port" begins. Systems lend higher ones to outgoing connections, so that one that was free today,
and is now a VM's for ever, could be busy tomorrow."""

KEPT_PORT_ADVICE = "use another data directory, because a VM keeps its port"
CHOOSE_PORT_ADVICE = "choose with --listen HOST:PORT where the ports of VMs begin (port 0: wherever some are free)"


LISTEN_ERROR_TEXT = {
    errno.EADDRINUSE: "another program does already: stop that one, or",
    errno.EACCES: "ports below 1024 need root:",
}


class ListenFailed(BaseError):
    """The system does not let this process listen there; mostly because another program does."""

    template = "cannot listen on port {port} of {host} for {what}, {why} {advice}"
    host: str
    port: int
    what: str
    error: OSError
    advice: str
    is_own: bool = False
    """Whether the port is the one of this service's operator API."""

    @property
    def why(self) -> str:
        """The system's reason, or that this service has the port itself."""
        if self.is_own:
            return "the operator API of this service does already: give it another port with --operator HOST:PORT, or"
        return LISTEN_ERROR_TEXT.get(self.error.errno or 0, f"{self.error.strerror}:")


class PortUnavailable(BaseError):
    """There are more VMs than ports."""

    template = (
        "there are not enough ports from {first} on for all VMs: start at a lower port, "
        "or use no ports (--listen none) and identify VMs by their addresses"
    )
    first: int


class TooManyListeners(BaseError):
    """The process may not have a listener open for every VM."""

    template = (
        "{vms} VMs need one listener each, but the system allows {files} open files: raise that limit (ulimit -n), "
        "or use no ports (--listen none) and identify VMs by their addresses"
    )
    vms: int
    files: int


LISTEN_ERRORS = (ListenFailed, PortUnavailable, TooManyListeners, FleetError, CoreError)
"""What can keep a new VM from having its port; most of it passes."""

MIN_BACKOFF, MAX_BACKOFF = 1.0, 60.0
"""How long, in seconds, to wait before a new VM is given its port after all, at first and at last."""


class VmPortListeners:
    """Listeners that are each fixed to one VM, for the VMs that are there and those that come.

    A VM that has left is told so at its port, for as long as there are open files enough for those that are there.
    """

    def __init__(
        self, fleet: Fleet, server: GuestServer, host: str, first: int, operator_port: int | None = None
    ) -> None:
        """`first` is where the ports of VMs begin (0: where some are free). None of them gets `operator_port`."""
        self._fleet = fleet
        self._server = server
        self._host = host
        self._first = first
        self._operator_port = operator_port
        self._open: dict[str, int] = {}
        self._changed: set[str] = set()
        self._has_changed = asyncio.Event()
        self.is_complete = True
        """Whether every VM has its port, as far as could be found out when one last came."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen for all VMs there are, and as long as the context lasts for those that come."""
        self._fleet.scopes.observers.append(self.observe)
        await self._open_all(_vm_names(self._fleet.replica.views()))
        async with tasks_until_exit() as tasks:
            tasks.create_task(self._open_for_changes(), name="ports for new VMs")
            yield

    def url(self, scope: str, vm: str) -> str | None:
        """Return the URL at which a VM finds its endpoint."""
        port = self._open.get(f"{scope}/{vm}")
        if port is None:
            return None
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    def observe(self, change: ScopeChange) -> None:
        """Note a scope in which a VM has no port yet."""
        roster = change.after.roster if change.after is not None else ()
        if any(f"{change.id}/{vm.name}" not in self._open for vm in roster):
            self._changed.add(change.id)
            self._has_changed.set()

    async def _open_for_changes(self) -> None:
        pauses = backoff(MIN_BACKOFF, MAX_BACKOFF)
        pause: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._has_changed.wait()
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            views = [view for view in self._fleet.replica.views() if view.id in changed]
            self.is_complete = await self._open_for_new(_vm_names(views))
            if self.is_complete:
                pauses, pause = backoff(MIN_BACKOFF, MAX_BACKOFF), None
            else:
                self._changed |= changed
                pause = next(pauses)

    async def _open_all(self, names: Iterable[str]) -> None:
        """Listen for the VMs that are there from the start; whatever is in the way is raised."""
        new, free = self._vms_without_port(names), self._free_ports()
        async with self._save_ports() as opened:
            for name in new:
                opened[name] = await self._listen(name, free, skip_busy=self._first == 0)

    async def _open_for_new(self, names: Iterable[str]) -> bool:
        """Listen for VMs that have come, and tell whether each has its port: one that cannot is in no other's way."""
        is_complete = True
        try:
            new, free = self._vms_without_port(names), self._free_ports()
            async with self._save_ports() as opened:
                for name in new:
                    try:
                        opened[name] = await self._listen(name, free, skip_busy=True)
                    except (ScopeNotFound, VmNotFound):
                        log.info("VM %s has left before it had its guest port", name)
                    except LISTEN_ERRORS as error:
                        is_complete = False
                        _log_error(error)
        except LISTEN_ERRORS as error:
            is_complete = False
            _log_error(error)
        return is_complete

    @asynccontextmanager
    async def _save_ports(self) -> AsyncIterator[dict[str, int]]:
        """Take who listens where, then save it; the listeners of what is not saved are closed.

        Listening comes first: a port that turns out to be busy must not be kept for ever.
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
        """Return the VMs without a listener, if there are enough files for them."""
        new = [name for name in names if name not in self._open]
        excess = _excess_listeners(len(self._open) + len(new))
        if new and excess:
            self._close_removed(excess)
            if _excess_listeners(listeners := len(self._open) + len(new)):
                raise TooManyListeners(listeners, _file_limit())
        return new

    def _close_removed(self, limit: int) -> None:
        """Close the listeners of VMs that have left, so that there are enough files for the others."""
        present = set(_vm_names(self._fleet.replica.views()))
        for name in [name for name in self._open if name not in present][:limit]:
            self._server.stop_listening(self._host, self._open.pop(name))

    async def _listen(self, name: str, free: Iterable[int], *, skip_busy: bool) -> int:
        """Listen for a VM at the port that it has, else at a free one."""
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
        """Give ports that neither a VM has or had, nor the operator API has."""
        taken = {*self._fleet.ports.assigned.values(), self._operator_port}
        return (port for port in self._port_range() if port not in taken)

    def _port_range(self) -> Iterable[int]:
        if self._first:
            return range(self._first, HIGHEST_PORT + 1)
        begin = secrets.randbelow(len(FREE_PORT_RANGE))
        return chain(FREE_PORT_RANGE[begin:], FREE_PORT_RANGE[:begin], range(FREE_PORT_RANGE.stop, HIGHEST_PORT + 1))


def _file_limit() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files


def _excess_listeners(listeners: int) -> int:
    """Return how many there are too many: a VM needs its listener and at least one connection."""
    return max(0, listeners - (_file_limit() - SPARE_FILES) // 2)


def _log_error(error: Exception) -> None:
    log.error("a new VM has no guest port yet: %s", error)  # the trace says nothing more


def _vm_names(views: Iterable[ScopeView]) -> list[str]:
    """Return the VMs of these scopes, as `scope/name`, by scope and in the order in which people count."""
    ordered = sorted(views, key=lambda view: view.id)
    return [f"{view.id}/{vm.name}" for view in ordered for vm in sorted(view.roster or (), key=_sort_key)]


def _sort_key(vm: Vm) -> tuple[list[str | int], str]:
    return natural_sort_key(vm.name)


class VmSocketListeners:
    """Sockets in a directory that its owner alone can enter, which nobody else may use at the same time.

    Whoever can open one of them is the VM, so that it is not for others on the machine to see them. The directory is
    never removed: a program that runs as a VM has it covered, and a new one in its place would not be.
    """

    def __init__(self, replica: Replica, server: GuestServer, directory: Path) -> None:
        self._replica = replica
        self._server = server
        self._directory = directory
        self._open: set[Path] = set()
        self._lock = asyncio.Lock()

    async def reopen(self) -> None:
        """Listen where a service before this one has listened: whoever is taken for a VM there waits for its return."""
        if self._directory.is_symlink():  # somebody has put it there
            self._directory.unlink()
        existing = set(self._directory.glob("*.sock"))
        for vm in self._vms() if existing else ():
            if (path := self._path(vm)) in existing:
                existing.remove(path)
                await self._reopen_vm(vm)
        for path in existing:
            path.unlink()

    async def open(self, vm: str) -> Path:
        """Return where `scope/name` is listened for, from now on if it was not yet."""
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
        except OSError as error:  # as when there are too many files: no reason not to start
            log.warning("nobody listens on the socket of VM %s any more: %s", vm, error.strerror)

    def _vms(self) -> list[str]:
        return [f"{view.id}/{vm.name}" for view in self._replica.views() for vm in view.roster or ()]

    def _path(self, vm: str) -> Path:
        return self._directory / f"{blake2s(vm.encode(), digest_size=8).hexdigest()}.sock"
