"""The listener for operators that the settings name."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from forewarn.guest.ports import CannotListen
from forewarn.settings import Endpoint

OTHER_OPERATOR = "choose another one with --operator HOST:PORT (port 0: any free one)"


@contextmanager
def bound(endpoint: Endpoint) -> Iterator[socket.socket]:
    """Take the operators' port before anything else happens, so that a busy one is found out early."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((endpoint.host, endpoint.port))
            listener.listen()
        except OSError as error:
            raise CannotListen(endpoint.host, endpoint.port, "the operator API", error, OTHER_OPERATOR) from error
        yield listener


def url(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the URL at which the listener is found."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{Endpoint(host, port)}"
