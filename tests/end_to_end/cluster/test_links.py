"""Links pass bytes, keep them while they are cut, in both directions or in one, and deliver them later."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.end_to_end.cluster.links import CUT, LinkState, Network, run_network

GUARD_SECONDS = 60
QUIET_SECONDS = 0.2
"""How long nothing arrives while a link is cut."""


@contextmanager
def run_echo() -> Iterator[int]:
    """Run a server that sends back what it receives, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(GUARD_SECONDS)


def echo(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        while data := connection.recv(1024):
            connection.sendall(data)


@contextmanager
def connected(network: Network, port_of_server: int) -> Iterator[socket.socket]:
    port = network.add("client", "server", lambda: port_of_server)
    with socket.create_connection(("127.0.0.1", port), timeout=GUARD_SECONDS) as connection:
        connection.sendall(b"one")
        assert connection.recv(1024) == b"one"
        yield connection


@pytest.mark.parametrize("state", [CUT, LinkState(up=False), LinkState(down=False)], ids=["cut", "up", "down"])
def test_cut_link_keeps_bytes_until_it_is_healed(state: LinkState) -> None:
    with run_echo() as port, run_network() as network, connected(network, port) as connection:
        network.set(state, {"client"})
        connection.sendall(b"two")
        connection.settimeout(QUIET_SECONDS)
        with pytest.raises(TimeoutError):
            connection.recv(1024)
        network.heal()
        connection.settimeout(GUARD_SECONDS)
        assert connection.recv(1024) == b"two"


def test_link_among_partitioned_programs_stays() -> None:
    with run_echo() as port, run_network() as network, connected(network, port) as connection:
        network.set(CUT, {"client", "server"})
        connection.sendall(b"two")
        assert connection.recv(1024) == b"two"


def test_connection_through_a_cut_link_is_made_later() -> None:
    with run_echo() as port, run_network() as network:
        link = network.add("client", "server", lambda: port)
        network.set(CUT, {"server"})
        with socket.create_connection(("127.0.0.1", link), timeout=GUARD_SECONDS) as connection:
            connection.sendall(b"one")
            network.heal()
            assert connection.recv(1024) == b"one"
