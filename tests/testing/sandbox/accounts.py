"""User accounts that run sandboxed programs: the user of the test run, and an unprivileged one."""

import os
import shutil
from pathlib import Path

import msgspec

NOBODY = 65_534
READS_ALL = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
"""Python itself may be where an ordinary user cannot read. In a sandbox this right is gone, as are all others."""


class Account(msgspec.Struct, frozen=True):
    """The command that runs another one as them, and a directory of their own."""

    within: tuple[str, ...]
    home: Path
    user: int


def current_account(home: Path) -> Account:
    """Return whoever runs the tests."""
    return Account((), home, os.getuid())


def unprivileged_account(home: Path) -> Account | str:
    """Return somebody else, where we can become them; else say why not."""
    if os.getuid() != 0:
        return "the other tests are an ordinary user's already"
    if shutil.which("setpriv") is None:
        return "the program setpriv is missing: install util-linux"
    os.chown(home, NOBODY, NOBODY)
    becoming = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS_ALL)
    return Account(becoming, home, NOBODY)
