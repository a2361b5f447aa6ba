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


def ourselves(home: Path) -> Person:
    """Return whoever runs the tests."""
    return Person((), home, os.getuid())


def ordinary_user(home: Path) -> Person | str:
    """Return somebody else, where we can become them; else say why not."""
    if os.getuid() != 0:
        return "the other tests are an ordinary user's already"
    if shutil.which("setpriv") is None:
        return "the program setpriv is missing: install util-linux"
    os.chown(home, NOBODY, NOBODY)
    becoming = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS_ALL)
    return Person(becoming, home, NOBODY)
