"""Small tmpfs disks that can be filled up, mounted for one test. Needs root."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_disk(directory: Path, size: str) -> Iterator[None]:
    """Mount a disk of this size in a new directory."""
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"a small disk needs root and the right to mount: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill_disk(disk: Path) -> Path:
    """Fill the disk; return the file to remove to free the space."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def make_full(disk: Path) -> Callable[[], None]:
    """Fill the disk; return a function that frees the space."""
    return fill_disk(disk).unlink


def make_read_only(disk: Path) -> Callable[[], None]:
    """Let nothing write to the disk, on which no file may be open for writing; return a function that ends this."""
    _remount(disk, "ro")
    return lambda: _remount(disk, "rw")


def _remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)
