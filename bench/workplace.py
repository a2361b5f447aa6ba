"""Where measuring happens: data directories that are gone afterwards, and a voice."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleets import Shape, fill


class Workplace:
    """A directory for everything that is made while measuring, and where to say how far it is."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._kept: dict[Shape, Path] = {}
        self.say = say

    def empty_directory(self) -> Path:
        """Make a directory in which nothing is yet."""
        return Path(tempfile.mkdtemp(dir=self._directory))

    def fleet(self, shape: Shape) -> Path:
        """Make a data directory with a fleet in it, to be changed at will."""
        if shape.vms > 1:
            self.say(f"    making {shape.vms:,} VMs in {shape.scopes:,} scopes")
        directory = self.empty_directory()
        fill(directory, shape)
        return directory

    def kept_fleet(self, shape: Shape) -> Path:
        """Make such a data directory once for all measurements that leave the fleet as it is."""
        if shape not in self._kept:
            self._kept[shape] = self.fleet(shape)
        return self._kept[shape]


@contextmanager
def workplace(disk: Path, *, say: Callable[[str], None]) -> Iterator[Workplace]:
    """Give a workplace on that disk. It should be a real one: in memory every fsync is free."""
    disk.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=disk))
    try:
        yield Workplace(directory, say)
    finally:
        shutil.rmtree(directory)
