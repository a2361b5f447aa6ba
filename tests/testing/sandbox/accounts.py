"""User accounts that run sandboxed programs: the user of the test run, and an unprivileged user."""

import os
import shutil
from pathlib import Path

import msgspec

NOBODY = 65_534
READS_ALL = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
"""Python may be installed where an ordinary user cannot read it. The sandbox drops this and all other capabilities."""


class Account(msgspec.Struct, frozen=True):
    """A command prefix that switches to the user, and the user's home directory."""

    within: tuple[str, ...]
    home: Path
    user: int


def current_account(home: Path) -> Account:
    """Return the user that runs the tests."""
    return Account((), home, os.getuid())


def unprivileged_account(home: Path) -> Account | str:
    """Return an unprivileged user, or the reason why switching to it is not possible."""
    if os.getuid() != 0:
        return "the tests already run as an ordinary user"
    if shutil.which("setpriv") is None:
        return "the program setpriv is missing: install util-linux"
    os.chown(home, NOBODY, NOBODY)
    becoming = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS_ALL)
    return Account(becoming, home, NOBODY)
