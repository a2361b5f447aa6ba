"""Who runs a program: whoever runs the tests, or somebody without any rights but to read what is installed."""

import os
import shutil
from pathlib import Path

import msgspec

NOBODY = 65_534
READS_ALL = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
"""Python itself may be where an ordinary user cannot read. In a sandbox this right is gone, as are all others."""


class Person(msgspec.Struct, frozen=True):
    """The command that runs another one as them, and a directory of their own."""

    within: tuple[str, ...]
    home: Path
    user: int


def ourselves(directory: Path) -> Person:
    """Return whoever runs the tests."""
    home = directory / "home"
    home.mkdir(mode=0o700)
    return Person((), home, os.getuid())


def ordinary_user(directory: Path) -> Person | str:
    """Return somebody else, where we can become them; else say why not."""
    if os.getuid() != 0:
        return "the other tests are an ordinary user's already"
    if shutil.which("setpriv") is None:
        return "the program setpriv is missing: install util-linux"
    _open_way(directory)
    home = directory / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    becoming = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS_ALL)
    return Person(becoming, home, NOBODY)


def _open_way(directory: Path) -> None:
    """Let others pass through the directories that pytest has closed to them."""
    for above in (directory, *directory.parents):
        if above.stat().st_uid == os.getuid() and above.stat().st_mode & 0o011 != 0o011 and "pytest" in str(above):
            above.chmod(above.stat().st_mode | 0o011)
