"""Optional dependencies (extras): require the packages of `forewarn[server]`, with an installation hint."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

from forewarn.cli.errors import CliError, ExitCode

T = TypeVar("T")

SERVER_PACKAGES = frozenset({"h11", "httptools", "litestar", "prometheus_client", "uvloop"})
"""What the extra `[server]` brings."""


def require_server(load: Callable[[], T]) -> T:
    """Import what needs the extra `[server]`; where it is missing, say how to get it.

    Some of it is imported only after the service has begun to answer, which is too late to find out.
    """
    try:
        loaded = load()
    except ModuleNotFoundError as error:
        if error.name in SERVER_PACKAGES:
            raise _missing_package(error.name) from None
        raise
    for name in sorted(SERVER_PACKAGES):
        if find_spec(name) is None:
            raise _missing_package(name)
    return loaded


def _missing_package(name: str) -> CliError:
    return CliError(ExitCode.USAGE, f"the service needs {name}: pip install 'forewarn[server]'")
