"""A disk that fails on demand: a library that is preloaded into a process (`faulty_disk.c`), built with gcc."""

import mmap
import shutil
import struct
import subprocess
from enum import IntEnum
from pathlib import Path

import msgspec
import pytest

SOURCE = Path(__file__).with_suffix(".c")
FOR_EVER = 1 << 62

_CONTROL = struct.Struct("=8Q")
_CALLS, _LAST, _FAULTS = 1, 3, 6


class Fault(IntEnum):
    """What happens to a call."""

    REFUSED = 1
    HALF_DONE = 2
    """Half of a write is written, then it fails; other calls are refused."""
    DONE_BUT_FAILED = 3
    KILLED_BEFORE = 4
    KILLED_AFTER = 5


class FaultPlan(msgspec.Struct, frozen=True):
    """Which calls fail, counted from 1, how, and with which errno."""

    fault: Fault
    number: int
    first: int
    last: int
    only_syncs: bool = False
    """Whether only syncs are counted and fail."""


class FaultyDisk:
    """The numbers that are shared with the processes that have the library."""

    def __init__(self, library: Path, control: Path) -> None:
        self.environ = {"LD_PRELOAD": str(library), "FAULTY_DISK": str(control)}
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _CONTROL.size)

    @classmethod
    def create(cls, directory: Path) -> "FaultyDisk":
        """Build the library; skip the test where that is not possible."""
        library, control = directory / "faulty_disk.so", directory / "faulty_disk"
        if (compiler := shutil.which("gcc")) is None:
            pytest.skip("gcc is not installed: apt-get install gcc")
        subprocess.run(
            [compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"],
            check=True,
        )
        control.write_bytes(bytes(_CONTROL.size))
        return cls(library, control)

    def arm(self, plan: FaultPlan | None = None) -> None:
        """Count the calls from now on; with a plan, some of them fail."""
        plan = plan or FaultPlan(Fault.REFUSED, 0, 0, 0)
        self._memory[:] = _CONTROL.pack(1, 0, plan.first, plan.last, plan.fault, plan.number, 0, plan.only_syncs)

    def disarm(self) -> None:
        """Let every call through."""
        self._memory[:8] = bytes(8)

    @property
    def calls(self) -> int:
        """How many calls there were since it was armed."""
        return int(_CONTROL.unpack(self._memory[:])[_CALLS])

    @property
    def faults(self) -> int:
        """How many of them failed."""
        return int(_CONTROL.unpack(self._memory[:])[_FAULTS])

    @property
    def is_broken(self) -> bool:
        """Whether every further call fails."""
        return self.faults > 0 and _CONTROL.unpack(self._memory[:])[_LAST] == FOR_EVER
