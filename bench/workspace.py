"""Temporary data directories of a benchmark run, and its progress log."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleets import Shape, fill


class Workspace:
    """A directory for everything that is made while measuring, and where to say how far it is."""

    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        self._directory = directory
        self._shared_fleets: dict[Shape, Path] = {}
        self.log = log

    def empty_directory(self) -> Path:
        """Make a directory in which nothing is yet."""
        return Path(tempfile.mkdtemp(dir=self._directory))

    def fleet(self, shape: Shape) -> Path:
        """Make a data directory with a fleet in it, to be changed at will."""
        if shape.vms > 1:
            self.log(f"    making {shape.vms:,} VMs in {shape.scopes:,} scopes")
        directory = self.empty_directory()
        fill(directory, shape)
        return directory

    def shared_fleet(self, shape: Shape) -> Path:
        """Make such a data directory once for all measurements that leave the fleet as it is."""
        if shape not in self._shared_fleets:
            self._shared_fleets[shape] = self.fleet(shape)
        return self._shared_fleets[shape]


@contextmanager
def create_workspace(disk: Path, *, log: Callable[[str], None]) -> Iterator[Workspace]:
    """Give a workplace on that disk. It should be a real one: in memory every fsync is free."""
    disk.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=disk))
    try:
        yield Workspace(directory, log)
    finally:
        shutil.rmtree(directory)
