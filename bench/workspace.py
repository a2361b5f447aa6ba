"""Temporary data directories of a benchmark run, and its progress log."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleets import Shape, fill


class Workspace:
    """A directory for all files of a run, and an output for progress messages."""

    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        self._directory = directory
        self._shared_fleets: dict[Shape, Path] = {}
        self.log = log

    def empty_directory(self) -> Path:
        """Create an empty directory."""
        return Path(tempfile.mkdtemp(dir=self._directory))

    def fleet(self, shape: Shape) -> Path:
        """Create a data directory with a fleet that the measurement may change."""
        if shape.vms > 1:
            self.log(f"    making {shape.vms:,} VMs in {shape.scopes:,} scopes")
        directory = self.empty_directory()
        fill(directory, shape)
        return directory

    def shared_fleet(self, shape: Shape) -> Path:
        """Create such a data directory once, for all measurements that do not change the fleet."""
        if shape not in self._shared_fleets:
            self._shared_fleets[shape] = self.fleet(shape)
        return self._shared_fleets[shape]


@contextmanager
def create_workspace(disk: Path, *, log: Callable[[str], None]) -> Iterator[Workspace]:
    """Yield a workspace on this disk. Use a real disk: on tmpfs, fsync costs nothing."""
    disk.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=disk))
    try:
        yield Workspace(directory, log)
    finally:
        shutil.rmtree(directory)
