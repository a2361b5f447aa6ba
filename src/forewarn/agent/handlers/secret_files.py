"""Secret files: read at each use, and registered for redaction in the log."""

import stat
from collections.abc import Callable
from pathlib import Path

LARGEST = 65_536

Hide = Callable[[str], None]
"""Takes what must never stand in a log."""


def hide_nothing(secret: str) -> None:
    """Hide nothing, where nothing is logged."""
    del secret


class InvalidSecret(Exception):
    """A file does not give a secret; the message says why, and nothing of what is in it."""


def read_secret(path: Path, hide: Hide) -> str:
    """Return the secret of a file that has just one, without the line break at its end."""
    secret, *more = read_secrets(path, hide)
    if more:
        raise InvalidSecret(f"{path} has more than one line")
    return secret


def read_secrets(path: Path, hide: Hide) -> list[str]:
    """Return the secrets of a file with one in each line; empty lines and those that begin with # are passed over."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSecret(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSecret(f"{path} is not text") from error
    secrets = [line.strip() for line in text[:LARGEST].splitlines() if line.strip() and not line.startswith("#")]
    if not secrets:
        raise InvalidSecret(f"{path} is empty")
    if not all(secret.isprintable() for secret in secrets):
        raise InvalidSecret(f"{path} has characters that no secret has")
    for secret in secrets:
        hide(secret)
    return secrets


def check_secret_file(path: Path) -> list[str]:
    """Return what is wrong with a file of secrets, for a self-test."""
    try:
        read_secrets(path, hide_nothing)
    except InvalidSecret as error:
        return [str(error)]
    if path.stat().st_mode & stat.S_IROTH:
        return [f"{path} can be read by everybody on this machine: chmod o-r {path}"]
    return []
