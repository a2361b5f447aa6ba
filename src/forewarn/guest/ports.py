"""A port of its own for every VM: given once, saved, and never given to another."""

import asyncio
import errno
import logging
import resource
import secrets
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import chain

from forewarn.core.errors import CoreError
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Vm
from forewarn.fleet.errors import FleetError, ScopeNotFound, VmNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import SPARE_FILES
from forewarn.guest.server import GuestServer

log = logging.getLogger(__name__)

HIGHEST_PORT = 65_535
ANY_PORT = range(20_000, 30_000)
"""Where "any free port" begins. Systems lend higher ones to outgoing connections, so that one that was free today,
and is now a VM's for ever, could be busy tomorrow."""

KEPT = "use another data directory, because a VM keeps its port"
CHOOSE = "choose with --listen HOST:PORT where the ports of VMs begin (port 0: wherever some are free)"


WHY_NOT = {
    errno.EADDRINUSE: "another program does already: stop that one, or",
    errno.EACCES: "ports below 1024 need root:",
}


class CannotListen(Exception):
    """The system does not let us listen there; mostly because another program does."""

    def __init__(self, host: str, port: int, what: str, error: OSError, advice: str) -> None:
        self.host, self.port, self.what = host, port, what
        why = WHY_NOT.get(error.errno or 0, f"{error.strerror}:")
        super().__init__(f"cannot listen on port {port} of {host} for {what}, {why} {advice}")


class NoPortLeft(Exception):
    """There are more VMs than ports."""

    def __init__(self, first: int) -> None:
        self.first = first
        super().__init__(
            f"not every VM can have a port of its own from {first} on: begin at a lower one, "
            "or use no ports (--listen none) and let the endpoint know its callers by address"
        )


class TooFewFiles(Exception):
    """The process may not have a listener open for every VM."""

    def __init__(self, vms: int, files: int) -> None:
        self.vms, self.files = vms, files
        super().__init__(
            f"{vms} VMs need a listener each, but the system allows {files} open files: raise that limit (ulimit -n), "
            "or use no ports (--listen none) and let the endpoint know its callers by address"
        )


TROUBLE = (CannotListen, NoPortLeft, TooFewFiles, FleetError, CoreError)
"""What can keep a new VM from having its port; most of it passes."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How long, in seconds, to wait before a new VM is given its port after all, at first and at last."""


class PortPerVm:
    """Listeners that are each fixed to one VM, for the VMs that are there and those that come.

    A VM that has left is told so at its port, for as long as there are open files enough for those that are there.
    """

    def __init__(self, fleet: Fleet, server: GuestServer, host: str, first: int) -> None:
        self._fleet = fleet
        self._server = server
        self._host = host
        self._first = first
        self._open: dict[str, int] = {}
        self._changed: set[str] = set()
        self._has_changed = asyncio.Event()
        self.is_complete = True
        """Whether every VM has its port, as far as could be found out when one last came."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen for all VMs there are, and as long as the context lasts for those that come."""
        self._fleet.on_change(self._note)
        await self._open_all(_names(self._fleet.replica.views()))
        async with tasks_until_exit() as tasks:
            tasks.create_task(self._follow(), name="ports for new VMs")
            yield

    def url(self, scope: str, vm: str) -> str | None:
        """Return the URL at which a VM finds its endpoint."""
        port = self._open.get(f"{scope}/{vm}")
        if port is None:
            return None
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    def _note(self, view: ScopeView) -> None:
        if any(name not in self._open for name in _names([view])):
            self._changed.add(view.id)
            self._has_changed.set()

    async def _follow(self) -> None:
        pause: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._has_changed.wait()
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            views = [view for view in self._fleet.replica.views() if view.id in changed]
            self.is_complete = await self._open_for_new(_names(views))
            if self.is_complete:
                pause = None
            else:
                self._changed |= changed
                pause = FIRST_PAUSE if pause is None else min(2 * pause, LONGEST_PAUSE)

    async def _open_all(self, names: Iterable[str]) -> None:
        """Listen for the VMs that are there from the start; whatever is in the way is raised."""
        new, free = self._new(names), self._free_ports()
        async with self._saved() as given:
            for name in new:
                given[name] = await self._listen(name, free, skip_busy=self._first == 0)

    async def _open_for_new(self, names: Iterable[str]) -> bool:
        """Listen for VMs that have come, and tell whether each has its port: one that cannot is in no other's way."""
        is_complete = True
        try:
            new, free = self._new(names), self._free_ports()
            async with self._saved() as given:
                for name in new:
                    try:
                        given[name] = await self._listen(name, free, skip_busy=True)
                    except (ScopeNotFound, VmNotFound):
                        log.info("VM %s has left before it had its guest port", name)
                    except TROUBLE as error:
                        is_complete = False
                        _tell(error)
        except TROUBLE as error:
            is_complete = False
            _tell(error)
        return is_complete

    @asynccontextmanager
    async def _saved(self) -> AsyncIterator[dict[str, int]]:
        """Take who listens where, then save it; the listeners of what is not saved are closed.

        Listening comes first: a port that turns out to be busy must not be kept for ever.
        """
        given: dict[str, int] = {}
        try:
            yield given
            if given:
                await self._fleet.assign_ports(given)
        except BaseException:
            for port in given.values():
                self._server.stop_listening(self._host, port)
            raise
        self._open.update(given)

    def _new(self, names: Iterable[str]) -> list[str]:
        """Return those for whom nobody listens yet, if there are files for them."""
        new = [name for name in names if name not in self._open]
        lacking = _lacking_listeners(len(self._open) + len(new))
        if new and lacking:
            self._close_departed(lacking)
            if _lacking_listeners(listeners := len(self._open) + len(new)):
                raise TooFewFiles(listeners, _files())
        return new

    def _close_departed(self, most: int) -> None:
        """Listen no more for VMs that have left, so that those that are there can be heard."""
        present = set(_names(self._fleet.replica.views()))
        for name in [name for name in self._open if name not in present][:most]:
            self._server.stop_listening(self._host, self._open.pop(name))

    async def _listen(self, name: str, free: Iterable[int], *, skip_busy: bool) -> int:
        """Listen for a VM at the port that it has, else at a free one."""
        kept = self._fleet.ports.get(name)
        for port in free if kept is None else (kept,):
            try:
                return await self._server.listen_as(name, self._host, port)
            except OSError as error:
                if kept is not None or not skip_busy or error.errno != errno.EADDRINUSE:
                    advice = CHOOSE if kept is None else KEPT
                    raise CannotListen(self._host, port, f"VM {name}", error, advice) from error
        raise NoPortLeft(self._first)

    def _free_ports(self) -> Iterator[int]:
        """Give ports that no VM has or had."""
        taken = set(self._fleet.ports.values())
        return (port for port in self._candidates() if port not in taken)

    def _candidates(self) -> Iterable[int]:
        if self._first:
            return range(self._first, HIGHEST_PORT + 1)
        begin = secrets.randbelow(len(ANY_PORT))
        return chain(ANY_PORT[begin:], ANY_PORT[:begin], range(ANY_PORT.stop, HIGHEST_PORT + 1))


def _files() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files


def _lacking_listeners(listeners: int) -> int:
    """Return how many there are too many: a VM needs its listener and at least one connection."""
    return max(0, listeners - (_files() - SPARE_FILES) // 2)


def _tell(error: Exception) -> None:
    log.error("a new VM has no guest port yet: %s", error)  # the trace says nothing more


def _names(views: Iterable[ScopeView]) -> list[str]:
    """Return the VMs of these scopes, as `scope/name`, by scope and in the order in which people count."""
    ordered = sorted(views, key=lambda view: view.id)
    return [f"{view.id}/{vm.name}" for view in ordered for vm in sorted(view.roster or (), key=_count)]


def _count(vm: Vm) -> tuple[list[str | int], str]:
    return natural_sort_key(vm.name)
