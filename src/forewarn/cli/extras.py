"""Parts of the program that a plain install has not."""

from collections.abc import Callable
from typing import TypeVar

from forewarn.cli.exits import Exit, Stop

T = TypeVar("T")

SERVER = frozenset({"httptools", "litestar", "prometheus_client", "uvicorn", "uvloop"})
"""What the extra `[server]` brings."""


def needing_server(load: Callable[[], T]) -> T:
    """Import what needs the extra `[server]`; where it is missing, say how to get it."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name in SERVER:
            raise Stop(Exit.USAGE, f"the service needs {error.name}: pip install 'forewarn[server]'") from None
        raise
