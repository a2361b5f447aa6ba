"""A unix socket for a VM, opened when somebody asks for it: how a program on this machine is taken for that VM."""

import asyncio
import logging
from hashlib import blake2s
from pathlib import Path

from forewarn.fleet.replica import Replica
from forewarn.guest.server import GuestServer

log = logging.getLogger(__name__)


class SocketPerVm:
    """Sockets in a directory that its owner alone can enter, which nobody else may use at the same time.

    Whoever can open one of them is the VM, so that it is not for others on the machine to see them. The directory is
    never removed: a program that runs as a VM has it covered, and a new one in its place would not be.
    """

    def __init__(self, replica: Replica, server: GuestServer, directory: Path) -> None:
        self._replica = replica
        self._server = server
        self._directory = directory
        self._open: set[Path] = set()
        self._one_at_a_time = asyncio.Lock()

    async def open_again(self) -> None:
        """Listen where a service before this one has listened: whoever is taken for a VM there waits for its return."""
        if self._directory.is_symlink():  # somebody has put it there
            self._directory.unlink()
        left = set(self._directory.glob("*.sock"))
        for vm in self._vms() if left else ():
            if (path := self._path(vm)) in left:
                left.remove(path)
                await self._open_once_more(vm)
        for path in left:
            path.unlink()

    async def open(self, vm: str) -> Path:
        """Return where `scope/name` is listened for, from now on if it was not yet."""
        path = self._path(vm)
        async with self._one_at_a_time:
            if path not in self._open:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                await self._server.listen_as_unix(vm, path)
                self._open.add(path)
        return path

    async def _open_once_more(self, vm: str) -> None:
        try:
            await self.open(vm)
        except OSError as error:  # as when there are too many files: no reason not to start
            log.warning("nobody listens on the socket of VM %s any more: %s", vm, error.strerror)

    def _vms(self) -> list[str]:
        return [f"{view.id}/{vm.name}" for view in self._replica.views() for vm in view.roster or ()]

    def _path(self, vm: str) -> Path:
        return self._directory / f"{blake2s(vm.encode(), digest_size=8).hexdigest()}.sock"
