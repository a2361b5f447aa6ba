"""Secret files: read at each use, and registered for redaction in the log."""

import stat
from collections.abc import Callable
from pathlib import Path

from forewarn.core.base_error import BaseError

LARGEST = 65_536

Hide = Callable[[str], None]
"""Registers a secret that must never appear in the log."""


def hide_nothing(secret: str) -> None:
    """Hide nothing, for use without a log."""
    del secret


class InvalidSecret(BaseError):
    """A secret file cannot be used. The message says why, without any of its content."""

    template = "{problem}"
    problem: str


def read_secret(path: Path, hide: Hide) -> str:
    """Return the secret of a file with a single line, without the line break."""
    secret, *more = read_secrets(path, hide)
    if more:
        raise InvalidSecret(f"{path} has more than one line")
    return secret


def read_secrets(path: Path, hide: Hide) -> list[str]:
    """Return the secrets of a file with one per line; empty lines and lines that start with # are ignored."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSecret(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSecret(f"{path} is not text") from error
    secrets = [line.strip() for line in text[:LARGEST].splitlines() if line.strip() and not line.startswith("#")]
    if not secrets:
        raise InvalidSecret(f"{path} is empty")
    if not all(secret.isprintable() for secret in secrets):
        raise InvalidSecret(f"{path} contains unprintable characters")
    for secret in secrets:
        hide(secret)
    return secrets


def check_secret_file(path: Path) -> list[str]:
    """Return the problems of a secret file, for `agent test`."""
    try:
        read_secrets(path, hide_nothing)
    except InvalidSecret as error:
        return [str(error)]
    if path.stat().st_mode & stat.S_IROTH:
        return [f"{path} is world-readable: chmod o-r {path}"]
    return []
