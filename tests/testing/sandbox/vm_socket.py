"""A VM socket without a service: the test accepts connections, reads requests and sends responses."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.testing import sandbox

GUARD = 120.0
"""The seconds after which a test counts as hanging."""

CONNECT = """
import socket, sys
def connected():
    return socket.create_connection(("169.254.169.254", 80), timeout=120)
def all_of(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))
"""
"""The first lines of test programs that run in a sandbox."""


class VmSocket:
    """The socket of a VM: it runs programs as this VM, and accepts their connections."""

    def __init__(self, path: Path, listener: socket.socket) -> None:
        self.path = path
        self._listener = listener

    def accept(self) -> socket.socket:
        """Wait for the next connection."""
        connection, _ = self._listener.accept()
        connection.settimeout(GUARD)
        return connection

    def end(self) -> None:
        """Stop listening, like a service that has ended."""
        self._listener.close()

    def run(self, *command: str, hostname: str = "web-0", path: Path | None = None) -> "subprocess.Popen[bytes]":
        """Start a program with pipes as its streams."""
        return sandbox.run(
            command,
            socket=path or self.path,
            hostname=hostname,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def script(self, text: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a Python program."""
        return self.run(sys.executable, "-u", "-c", CONNECT + text, *arguments)


@contextmanager
def listen_as_vm(directory: Path) -> Iterator[VmSocket]:
    """Listen on a socket in a new directory."""
    path = directory / "sockets" / "vm.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1024)
        listener.settimeout(GUARD)
        yield VmSocket(path, listener)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        assert piece, f"the connection has ended after {len(pieces)} of {size} bytes"
        pieces += piece
    return bytes(pieces)


def wait_for_output(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    """Wait for a program's end; return its exit code and its output."""
    out, err = process.communicate(timeout=GUARD)
    return process.returncode, out.decode(), err.decode()


def output(vm: VmSocket, *command: str) -> str:
    """Run a program that must succeed, and return its output."""
    code, out, err = wait_for_output(vm.run(*command))
    assert code == 0, err
    return out


def lines(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Yield the lines of a program's output."""
    assert process.stdout is not None
    for line in process.stdout:
        yield line.decode().rstrip("\n")
