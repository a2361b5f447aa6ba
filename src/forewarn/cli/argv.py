"""Redact tokens in the process's command line (argv), which every user of the machine can read."""

import ctypes
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TOKEN_OPTION = "--token"  # noqa: S105 - the name of the option, not a secret
PROC_SELF = Path("/proc/self")
ARG_START_FIELD = 45
"""Index of arg_start in /proc/self/stat, counted after the process name (proc_pid_stat(5))."""


def redact_tokens(arguments: Sequence[str]) -> None:
    """Overwrite every token in the command line that the system shows. Works only on Linux."""
    if sys.platform == "linux" and (secrets := [secret.encode() for secret in _tokens(arguments) if secret]):
        _overwrite(secrets)


def _tokens(arguments: Sequence[str]) -> Iterator[str]:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, equals, value = argument.partition("=")
        if option == TOKEN_OPTION:
            yield value if equals else following


def _overwrite(secrets: Iterable[bytes]) -> None:
    shown = (PROC_SELF / "cmdline").read_bytes()
    begin = int((PROC_SELF / "stat").read_text().rpartition(")")[2].split()[ARG_START_FIELD])
    for secret in secrets:
        at = shown.find(secret + b"\0")
        if begin and at >= 0:
            ctypes.memset(begin + at, ord("x"), len(secret))
