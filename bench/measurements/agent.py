"""Memory and processor time of an idle agent that polls every second."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec

from bench.figures import rounded
from bench.process import TIMEOUT, cpu_seconds, free_port, resident_bytes, wait_for
from bench.result import BenchmarkResult
from bench.workspace import Workspace

TARGET_RATIO = 1.2
TARGET_PERCENT = 0.5

BARE_IMPORTS = ("asyncio", "ssl", "http.client", "subprocess", "msgspec")
"""Modules that any program needs to poll, start programs and use TLS."""

INSTANCE = b'{"compute":{"name":"web_0"}}'
NOTHING_PLANNED = b'{"DocumentIncarnation":1,"Events":[]}'

SETTINGS = """\
interval = "1s"
state = "{directory}/state"

[http]
listen = "127.0.0.1:{port}"

[handlers.balancer]
kind = "haproxy"
servers = ["web/web_0"]

[handlers.web-server]
kind = "systemd"
units = ["nginx.service"]

[handlers.probe]
kind = "readiness"
listen = "127.0.0.1:{probe}"

[[rules]]
handlers = ["balancer", "web-server", "probe", "log"]
"""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How long the agent is measured."""

    seconds: float = 600.0
    looks: int = 20
    """How often its memory is measured."""


FULL = Size()
QUICK = Size(seconds=20.0)


class Endpoint:
    """An endpoint without long polls, like Azure's, so that the agent polls it every second."""

    def __init__(self) -> None:
        self.asked = 0

    def answer(self, path: str) -> bytes:
        """Count a GET and return the response."""
        if path.startswith("/metadata/instance"):
            return INSTANCE
        self.asked += 1
        return NOTHING_PLANNED


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Run an idle agent, and measure it at intervals."""
    with _endpoint() as (endpoint, url), _agent(workspace.empty_directory(), url) as pid:
        wait_for(lambda: endpoint.asked >= 3, "an agent that asks")
        workspace.log(f"    watching it for {size.seconds:.0f} s")
        asked, worked, began_at = endpoint.asked, cpu_seconds(pid), time.monotonic()
        resident = [_resident_after(pid, size.seconds / size.looks) for _ in range(size.looks)]
        took = time.monotonic() - began_at
        asked, worked = endpoint.asked - asked, cpu_seconds(pid) - worked
    if asked < took * 0.8 - 1:
        raise ValueError(f"it asked {asked} times in {took:.0f} s: that is no polling once a second")
    percent, megabytes, bare = 100 * worked / took, max(resident), _bare_interpreter()
    ratio = megabytes / bare
    return BenchmarkResult(
        what="the agent at rest, asking once a second",
        measured=f"{ratio:.2f} × a bare interpreter ({megabytes:.1f} MB : {bare:.1f} MB), {percent:.2f} % of one core",
        target=f"≤ {TARGET_RATIO} ×, ≤ {TARGET_PERCENT} %",
        met=ratio <= TARGET_RATIO and percent <= TARGET_PERCENT,
        figures={
            "ratio": round(ratio, 3),
            "resident_mb": rounded(resident, 1),
            "bare_mb": round(bare, 1),
            "percent_of_a_core": round(percent, 3),
            "processor_seconds": round(worked, 2),
            "seconds": round(took, 1),
            "asked": asked,
        },
        note=f"`forewarn agent run` with handlers for HAProxy, systemd, a probe and the log, watched for {took:.0f} s "
        f"after its start, in which it asked {asked} times; the most memory that was seen, in millions of bytes, "
        f"against an interpreter that has imported {', '.join(BARE_IMPORTS)}",
    )


def _bare_interpreter() -> float:
    """Return the resident size of an interpreter with only BARE_IMPORTS, in millions of bytes."""
    program = f"import sys, {', '.join(BARE_IMPORTS)}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return resident_bytes(process.pid) / 1_000_000


def _resident_after(pid: int, seconds: float) -> float:
    time.sleep(seconds)
    return resident_bytes(pid) / 1_000_000


@contextmanager
def _agent(directory: Path, url: str) -> Iterator[int]:
    file = directory / "agent.toml"
    file.write_text(SETTINGS.format(directory=directory, port=free_port(), probe=free_port()), encoding="utf-8")
    program = Path(sys.executable).parent / "forewarn"
    with (directory / "agent.log").open("w") as log:
        process = subprocess.Popen(
            [program, "agent", "run", "--config", file], env={"FOREWARN_ENDPOINT": url}, stdout=log, stderr=log
        )
    try:
        yield process.pid
        if process.poll() is not None:
            raise RuntimeError(f"the agent has ended: {(directory / 'agent.log').read_text()}")
    finally:
        process.kill()
        process.wait(TIMEOUT)


@contextmanager
def _endpoint() -> Iterator[tuple[Endpoint, str]]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = endpoint.answer(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield endpoint, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
