"""A unix socket for a VM, opened when somebody asks for it: how a program on this machine is taken for that VM."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2s
from pathlib import Path

from forewarn.guest.server import GuestServer


class SocketPerVm:
    """Sockets in a directory that its owner alone can enter, which nobody else may use at the same time.

    Whoever can open one of them is the VM, so that it is not for others on the machine to see them.
    """

    def __init__(self, server: GuestServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._open: set[Path] = set()
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Let sockets be opened as long as the context lasts; take away what a service that was killed has left."""
        _clear(self._directory)
        try:
            yield
        finally:
            _clear(self._directory)

    async def open(self, vm: str) -> Path:
        """Return where `scope/name` is listened for, from now on if it was not yet."""
        path = self._directory / f"{blake2s(vm.encode(), digest_size=8).hexdigest()}.sock"
        async with self._one_at_a_time:
            if path not in self._open:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                await self._server.listen_as_unix(vm, path)
                self._open.add(path)
        return path


def _clear(directory: Path) -> None:
    """Remove the directory, or the link that somebody has put in its place."""
    if directory.is_symlink():
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
