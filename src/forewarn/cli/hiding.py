"""A token that is typed as an option is taken out of the process list, which everybody on the machine can read."""

import ctypes
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

OPTION = "--token"
OURSELVES = Path("/proc/self")
ARG_START = 45
"""Where the address of our own arguments stands in `stat`, counted from the end of our name (proc_pid_stat(5))."""


def hide_tokens(arguments: Sequence[str]) -> None:
    """Blank every token among the arguments, as the system shows them; where it is not Linux they stay."""
    if sys.platform == "linux" and (secrets := [secret.encode() for secret in _tokens(arguments) if secret]):
        _blank(secrets)


def _tokens(arguments: Sequence[str]) -> Iterator[str]:
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == OPTION:
            yield value if equals else following


def _blank(secrets: Iterable[bytes]) -> None:
    shown = (OURSELVES / "cmdline").read_bytes()
    begin = int((OURSELVES / "stat").read_text().rpartition(")")[2].split()[ARG_START])
    for secret in secrets:
        at = shown.find(secret + b"\0")
        if begin and at >= 0:
            ctypes.memset(begin + at, ord("x"), len(secret))
