"""Optional dependencies (extras): require the packages of the extras `[server]` and `[cluster]`, with a hint."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from forewarn.cli.errors import CliError, ExitCode

SERVER_PACKAGES = frozenset({"h11", "httptools", "jinja2", "litestar", "markupsafe", "prometheus_client", "uvloop"})
"""The packages of the extra `[server]`."""


@contextmanager
def require_server() -> Iterator[None]:
    """Import code that needs the extra `[server]`; if a package is missing, raise an error that names the extra.

    All packages are checked here, because some are imported only after the service has started to answer.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in SERVER_PACKAGES:
            raise _missing_package(error.name) from None
        raise
    for name in sorted(SERVER_PACKAGES):
        if find_spec(name) is None:
            raise _missing_package(name)


@contextmanager
def require_cluster() -> Iterator[None]:
    """Import code that needs the extra `[cluster]`; if a package is missing, raise an error that names the extra."""
    if find_spec("nats") is None:
        raise CliError(ExitCode.USAGE, 'store = "nats" needs nats-py: install Forewarn with its extra [cluster]')
    with require_server():
        yield


def _missing_package(name: str) -> CliError:
    return CliError(ExitCode.USAGE, f"the service needs {name}: install Forewarn with its extra [server]")
