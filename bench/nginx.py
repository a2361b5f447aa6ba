"""nginx as the baseline: one process, no access log, a constant response of the same size as ours."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.guest_client import HOST, QUERY, Response, connect, send_request
from bench.machine import find_program
from bench.process import TIMEOUT, free_port, wait_for

OWN_HEADERS = ("Server", "Date", "Content-Type", "Content-Length", "Connection")
"""Headers that nginx itself adds to every response."""


def configuration(directory: Path, port: int, answer: Response, *, padding: int = 0) -> str:
    """Return a configuration whose response has the same body and number of headers as the given one."""
    fillers = range(len(answer.headers) - len(OWN_HEADERS))
    headers = [f'add_header X-Filler-{number} "{"x" * (padding if number == 0 else 1)}";' for number in fillers]
    temporary = [
        f'{name}_temp_path "{directory / name}";' for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ]
    return "\n".join(
        [
            "daemon off;",
            "master_process off;",
            f'pid "{directory / "nginx.pid"}";',
            f'error_log "{directory / "error.log"}";',
            "events { worker_connections 4096; }",
            "http {",
            *temporary,
            "access_log off;",
            "server_tokens off;",
            "keepalive_requests 1000000000;",
            f'default_type "{answer.header("content-type")}";',
            f"server {{ listen {HOST}:{port}; location / {{",
            *headers,
            f"return 200 '{answer.body.decode()}';",
            "} } }",
            "",
        ]
    )


class Nginx(NamedTuple):
    """A running nginx."""

    pid: int
    port: int


@contextmanager
def run_nginx(directory: Path, answer: Response, query: bytes = QUERY) -> Iterator[Nginx]:
    """Run nginx with a response of the same size and number of headers as the given one, on a free port."""
    with _running(directory, answer, padding=1) as draft:
        lacking = answer.size - sample(draft.port, query).size
    with _running(directory, answer, padding=1 + lacking) as nginx:
        served = sample(nginx.port, query)
        if (served.size, len(served.headers)) != (answer.size, len(answer.headers)):
            raise ValueError(
                f"nginx answers {served.size} bytes with {len(served.headers)} headers, "
                f"not {answer.size} with {len(answer.headers)}"
            )
        yield nginx


def sample(port: int, query: bytes = QUERY) -> Response:
    """Send one request."""
    with connect(port, HOST) as connection:
        return send_request(connection, query)


@contextmanager
def _running(directory: Path, answer: Response, *, padding: int) -> Iterator[Nginx]:
    port = free_port()
    file = directory / "nginx.conf"
    file.write_text(configuration(directory, port, answer, padding=padding), encoding="utf-8")
    process = subprocess.Popen([find_program("nginx"), "-p", directory, "-c", file], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), "nginx")
        if process.poll() is not None:
            raise RuntimeError(f"nginx does not start: {(directory / 'error.log').read_text(encoding='utf-8')}")
        yield Nginx(process.pid, port)
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False
