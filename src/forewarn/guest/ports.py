"""A port of its own for every VM: given once, saved, and never given to another."""

import asyncio
import errno
import logging
import resource
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from forewarn.core.text import counting_order
from forewarn.core.vm import Vm
from forewarn.fleet.replica import View
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


class PortPerVm:
    """Listeners that are each fixed to one VM, for the VMs that are there and those that come."""

    def __init__(self, fleet: Fleet, server: GuestServer, host: str, first: int) -> None:
        self._fleet = fleet
        self._server = server
        self._host = host
        self._first = first
        self._open: set[str] = set()
        self._changed: set[str] = set()
        self._has_changed = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen for all VMs there are, and as long as the context lasts for those that come."""
        self._fleet.on_change(self._note)
        await self._open_all(_names(self._fleet.replica.views()), skip_busy=self._first == 0)
        following = asyncio.create_task(self._follow(), name="ports for new VMs")
        try:
            yield
        finally:
            following.cancel()

    def url(self, scope: str, vm: str) -> str | None:
        """Return the URL at which a VM finds its endpoint."""
        name = f"{scope}/{vm}"
        if name not in self._open:
            return None
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._fleet.ports[name]}"

    def _note(self, view: View) -> None:
        if any(name not in self._open for name in _names([view])):
            self._changed.add(view.id)
            self._has_changed.set()

    async def _follow(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            views = (view for view in self._fleet.replica.views() if view.id in changed)
            try:
                await self._open_all(_names(views), skip_busy=True)
            except (CannotListen, NoPortLeft, TooFewFiles) as error:
                log.error("a new VM has no guest port: %s", error)  # noqa: TRY400 - the trace says nothing more

    async def _open_all(self, names: Iterable[str], *, skip_busy: bool) -> None:
        """Listen first, save then: a port that turns out to be busy must not be kept for ever."""
        given: dict[str, int] = {}
        free = self._free_ports()
        new = [name for name in names if name not in self._open]
        self._check_files(len(self._open) + len(new))
        for name in new:
            if name in self._fleet.ports:
                given[name] = await self._listen(name, [self._fleet.ports[name]], KEPT)
            else:
                given[name] = await self._listen(name, free, CHOOSE, skip_busy=skip_busy)
        if given:
            await self._fleet.give_ports(given)
        self._open.update(given)

    @staticmethod
    def _check_files(listeners: int) -> None:
        """A VM needs its listener and at least one connection."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY and 2 * listeners + SPARE_FILES > files:
            raise TooFewFiles(listeners, files)

    async def _listen(self, name: str, ports: Iterable[int], advice: str, *, skip_busy: bool = False) -> int:
        for port in ports:
            try:
                return await self._server.listen_as(name, self._host, port)
            except OSError as error:
                if not (skip_busy and error.errno == errno.EADDRINUSE):
                    raise CannotListen(self._host, port, f"VM {name}", error, advice) from error
        raise NoPortLeft(self._first)

    def _free_ports(self) -> Iterator[int]:
        """Give ports that no VM has or had."""
        taken = set(self._fleet.ports.values())
        first = self._first or ANY_PORT.start + secrets.randbelow(len(ANY_PORT))
        return (port for port in range(first, HIGHEST_PORT + 1) if port not in taken)


def _names(views: Iterable[View]) -> list[str]:
    """Return the VMs of these scopes, as `scope/name`, by scope and in the order in which people count."""
    ordered = sorted(views, key=lambda view: view.id)
    return [f"{view.id}/{vm.name}" for view in ordered for vm in sorted(view.roster or (), key=_count)]


def _count(vm: Vm) -> tuple[list[str | int], str]:
    return counting_order(vm.name)
