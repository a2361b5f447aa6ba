"""Guest ports of a host's VMs: kept on disk, and reported to the control nodes."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from forewarn.files import read_file, write_file

PORTS_FILE = "ports.json"


class HostPorts:
    """The guest ports of the host's VMs: on disk, and reported to the control nodes. A VM keeps its port here."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / PORTS_FILE
        self._ports: dict[str, int] = {}
        with suppress(FileNotFoundError, ValueError):
            content = json.loads(read_file(self._file))
            self._ports = {str(name): int(port) for name, port in content.items()}
        self.address = "127.0.0.1"
        """The address of the ports."""
        self.is_reported = True
        self.on_changed: Callable[[], None] = lambda: None
        """Called when there is something to report."""

    @property
    def assigned(self) -> Mapping[str, int]:
        """The port of each VM, by `scope/name`."""
        return self._ports

    def merge(self, ports: Mapping[str, int]) -> None:
        """Add ports that the control nodes know and the disk does not have."""
        taken = set(self._ports.values())
        self._ports = {**{name: port for name, port in ports.items() if port not in taken}, **self._ports}

    async def assign(self, ports: Mapping[str, int]) -> None:
        """Assign ports to VMs."""
        ports = {**self._ports, **ports}
        if ports != self._ports:
            self._ports = ports
            await asyncio.to_thread(write_file, self._file, json.dumps(ports).encode())
        self.is_reported = False
        self.on_changed()
