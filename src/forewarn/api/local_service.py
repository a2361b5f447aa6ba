"""Discovery of services on this machine by `service.json` and `token` in the data directory.

`token` stays as long as the data; `service.json` exists, locked, only while the service runs. A service without stored
data (`--ephemeral`) has a directory below `ephemeral_root` that is removed when it ends."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from forewarn.api.errors import AmbiguousService, DirectoryNotAllowed, InvalidToken, ServiceNotFound
from forewarn.files import FileLock, is_locked, open_file, read_file, remove_unfinished, replace_file, write_file

SERVICE_FILE = "service.json"
TOKEN_FILE = "token"  # noqa: S105 - the name of the file, not its content

MAX_TOKEN_BYTES = 4096
"""The size of a token file of a data directory, at most."""

MIN_TOKEN_LENGTH = 20
"""The service refuses shorter admin tokens: a truncated file could contain one that is easy to guess."""


class LocalService(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `service.json`, which a running service writes."""

    pid: int
    started_at: datetime
    version: str
    operator_url: str
    link_local_url: str | None = None
    certificate: str | None = None


@contextmanager
def publish_service(directory: Path, service: LocalService) -> Iterator[None]:
    """Publish `service.json` while the context is open. The file is written atomically.

    It is locked, because a killed service cannot remove its file, and its process id may be reused; but the system
    releases the lock. Clients rely on this: they send the token to the URL in the file.
    """
    path = directory / SERVICE_FILE
    remove_unfinished(path)
    with ExitStack() as stack:
        with replace_file(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(service)) + b"\n")
            stack.callback(FileLock.hold(file, path).release)
        stack.callback(path.unlink, missing_ok=True)
        yield


def read_service(directory: Path) -> LocalService | None:
    """Return the service that runs on this data directory, or None."""
    path = directory / SERVICE_FILE
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            service = msgspec.json.decode(file.read(), type=LocalService)
            return service if is_locked(file.fileno()) else None
    except PermissionError as error:
        raise DirectoryNotAllowed(path, error.strerror or str(error)) from error
    except (OSError, msgspec.MsgspecError):
        return None


def ensure_token(directory: Path) -> str:
    """Return the token of this data directory; create it, readable only by its owner, if there is none.

    The caller must hold the lock of the directory, so that no other process creates one at the same time.
    """
    path = directory / TOKEN_FILE
    if not path.exists():
        remove_unfinished(path)
        write_file(path, f"{secrets.token_urlsafe(32)}\n".encode())
    token = read_token(path)
    if len(token) < MIN_TOKEN_LENGTH:
        raise InvalidToken(
            path, "the token is too short to be safe; remove the file, and the service creates a new one"
        )
    return token


def read_token(path: Path, *, may_be_link: bool = False) -> str:
    """Read a token from a file. A symbolic link is followed only if the user has named the file."""
    try:
        content = path.read_bytes() if may_be_link else read_file(path, MAX_TOKEN_BYTES)
        token = content.decode("ascii").strip()
    except OSError as error:
        raise InvalidToken(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidToken(path, "the content is not a token") from error
    if not is_token(token):
        raise InvalidToken(path, "the content is not a token")
    return token


def is_token(text: str) -> bool:
    """Return whether the text can be a token, which is sent as part of a header."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def is_readable_by_others(path: Path) -> bool:
    """Return whether other users of the machine can read the file."""
    return sys.platform != "win32" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def ephemeral_root(environ: Mapping[str, str]) -> Path:
    """Return the directory that contains the directories of ephemeral services."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "forewarn"
    user = os.getuid() if sys.platform != "win32" else environ.get("USERNAME", "")
    import tempfile  # imported late: it loads compression modules, which would slow down every start

    return Path(tempfile.gettempdir()) / f"forewarn-{user}"


def create_ephemeral_directory(root: Path) -> Path:
    """Create a directory for an ephemeral service; remove those that killed services left behind."""
    import shutil  # as above
    import tempfile

    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(root):
        raise PermissionError(errno.EPERM, "other users can write there, so it is not safe to use", str(root))
    for directory in root.iterdir():
        if (directory / SERVICE_FILE).exists() and read_service(directory) is None:
            shutil.rmtree(directory, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="up-", dir=root))


def is_private(root: Path) -> bool:
    """Return whether a directory belongs to the user. In a shared place another user could have created it first."""
    if sys.platform == "win32":
        return root.is_dir()
    with suppress(OSError):
        found = root.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return False


def ephemeral_services(root: Path) -> Iterator[tuple[Path, LocalService]]:
    """Yield the running ephemeral services with their directories."""
    if not is_private(root):
        return
    for directory in sorted(root.iterdir()):
        if (service := read_service(directory)) is not None:
            yield directory, service


def find_service(directory: Path, *, root: Path | None) -> tuple[Path, LocalService]:
    """Find the running service of a data directory, else, if `root` is given, the only ephemeral service below it."""
    if (service := read_service(directory)) is not None:
        return directory, service
    found = list(ephemeral_services(root)) if root is not None else []
    if len(found) > 1:
        raise AmbiguousService({str(path): _service_text(service) for path, service in found})
    if not found:
        raise ServiceNotFound(f"no service runs on {directory}")
    return found[0]


def _service_text(service: LocalService) -> str:
    since = f"{service.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"{service.operator_url}, process {service.pid}, since {since}"
