"""Parts of the program that a plain install has not."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

from forewarn.cli.exits import Exit, Stop

T = TypeVar("T")

SERVER = frozenset({"httptools", "litestar", "prometheus_client", "uvicorn", "uvloop"})
"""What the extra `[server]` brings."""


def needing_server(load: Callable[[], T]) -> T:
    """Import what needs the extra `[server]`; where it is missing, say how to get it.

    Some of it is imported only after the service has begun to answer, which is too late to find out.
    """
    try:
        loaded = load()
    except ModuleNotFoundError as error:
        if error.name in SERVER:
            raise _missing(error.name) from None
        raise
    for name in sorted(SERVER):
        if find_spec(name) is None:
            raise _missing(name)
    return loaded


def _missing(name: str) -> Stop:
    return Stop(Exit.USAGE, f"the service needs {name}: pip install 'forewarn[server]'")
