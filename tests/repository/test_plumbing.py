"""Shared plumbing exists once: only its module makes certain calls, unless a reason is listed here."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest


class Plumbing(NamedTuple):
    """Calls that belong to one module, and other modules that may make them, with the reason."""

    module: str
    calls: frozenset[str]
    exceptions: dict[str, str]


PLUMBING = {
    "atomic file writes and locks": Plumbing(
        "files",
        frozenset({
            "os.replace", "os.rename", "Path.replace", "Path.rename",
            "os.fsync", "os.fdatasync", "fcntl.flock", "fcntl.lockf", "msvcrt.locking",
            "tempfile.mkstemp", "tempfile.NamedTemporaryFile",
        }),
        {},
    ),
    "processes": Plumbing(
        "process",
        frozenset({
            "subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
            "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.posix_spawn", "os.posix_spawnp",
            "os.fork", "os.killpg", "os.system", "os.popen", "multiprocessing.get_context",
        }),
        {
            "operator.process_worker": "runs Python functions, on values that it exchanges with the process",
            "testing.sandbox": "gives its caller a Popen, whose streams are the caller's",
            "testing.sandbox.egress": "its program must die with its parent, in a process without asyncio",
            "testing.sandbox.namespace": "forks into new namespaces",
            "testing.sandbox.signals": "passes signals on between terminal and sandbox",
            "testing.sandbox.supervisor": "forks into new namespaces",
            "testing.vm": "gives its caller a Popen, as the sandbox does",
        },
    ),
    "HTTP clients": Plumbing(
        "http_client",
        frozenset({
            "asyncio.open_connection", "asyncio.open_unix_connection", "loop.create_connection",
            "loop.create_unix_connection", "loop.sock_connect", "socket.create_connection", "socket.connect",
            "http.client", "http.client.HTTPConnection", "http.client.HTTPSConnection", "http.client.HTTPException",
            "urllib.request", "urllib.request.urlopen", "h11", "aiohttp", "httpx", "requests",
        }),
        {
            "agent.handlers.haproxy": "HAProxy's runtime API is not HTTP",
            "agent.status": "synchronous, one GET from the agent's Unix socket",
            "api.transport": "synchronous, and streams long responses",
            "client.discovery": "looks whether a port is open, and sends nothing",
            "client.transport": "synchronous, and any thread can cancel it",
            "operator.http_server": "a server",
            "operator.request_reader": "raises h11's error for what h11 tolerates",
            "testing.conformance.raw_http": "sees every byte of a response that may be wrong",
            "testing.sandbox.relay": "copies bytes, whatever they mean",
            "testing.sandbox.ports": "asks a port whose server may not speak HTTP",
            "testing.sandbox.supervisor": "connects namespaces, not sockets",
        },
    ),
    "live view": Plumbing("cli.live.live_view", frozenset({"rich.live", "rich.live.Live"}), {}),
}  # fmt: skip

DOUBLING = re.compile(
    r"\b2(\.0)? \*\*|\b(pause|delay|backoff|interval|wait)\w* \* 2\b|\b2 \* (pause|delay|backoff|interval|wait)"
    r"|\*= ?2\b"
)
BACKOFF = "core/backoff.py"
CLEARED_LINE = r"\x1b[K"
STATUS_LINE = "cli/views/progress.py"


@cache
def used_names(source: str) -> frozenset[str]:
    """Return the full names that a module imports, or uses from imported modules."""
    return frozenset(_find_used_names(ast.parse(source)))


def _find_used_names(tree: ast.Module) -> Iterator[str]:
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def is_imported(value: ast.expr) -> bool:
        return ast.unparse(value).partition(".")[0] in aliases

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            first, dot, rest = name.partition(".")
            if first in aliases:
                yield f"{aliases[first]}{dot}{rest}"
        match node:
            # `str.replace` has two arguments; those of `datetime.replace` have names.
            case ast.Call(func=ast.Attribute(attr="replace" | "rename" as method), args=[_], keywords=[]):
                yield f"Path.{method}"
            case ast.Call(func=ast.Attribute(value, "connect"), args=[_], keywords=[]) if not is_imported(value):
                yield "socket.connect"
            case ast.Call(
                func=ast.Attribute(value, "create_connection" | "create_unix_connection" | "sock_connect" as method)
            ) if not is_imported(value):
                yield f"loop.{method}"
            case _:
                pass


def users(root: Path, plumbing: Plumbing) -> dict[str, set[str]]:
    """Return the modules that use the calls, with what each uses."""
    source = root / "src/forewarn"
    found: dict[str, set[str]] = {}
    for file in sorted(source.rglob("*.py")):
        if names := set(used_names(file.read_text()) & plumbing.calls):
            found[".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__")] = names
    return found


@pytest.mark.parametrize("plumbing", PLUMBING.values(), ids=PLUMBING)
def test_plumbing_is_used_and_not_written_again(root: Path, plumbing: Plumbing) -> None:
    found = users(root, plumbing)
    assert {
        module: names for module, names in found.items() if module not in {plumbing.module, *plumbing.exceptions}
    } == {}
    assert plumbing.module in found
    assert set(plumbing.exceptions) - set(found) == set(), "an unused exception"


def test_pauses_are_doubled_by_backoff_alone(root: Path) -> None:
    source = root / "src/forewarn"
    doubling = {str(file.relative_to(source)) for file in source.rglob("*.py") if DOUBLING.search(file.read_text())}
    assert doubling == {BACKOFF}


def test_status_line_alone_redraws_a_line(root: Path) -> None:
    source = root / "src/forewarn"
    redrawing = {str(file.relative_to(source)) for file in source.rglob("*.py") if CLEARED_LINE in file.read_text()}
    assert redrawing == {STATUS_LINE}


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("import os\nos.replace(a, b)", "files"),
        ("from os import fsync\nfsync(1)", "files"),
        ("def f(a, b):\n    a.rename(b)", "files"),
        ("def f(a, b):\n    a.parent.replace(b / a.name)", "files"),
        ("import fcntl as f\nf.flock(1, 2)", "files"),
        ("import asyncio\nasync def run():\n    await asyncio.create_subprocess_exec('ls')", "process"),
        ("import subprocess\ndef run():\n    return subprocess.run([])", "process"),
        ("from http.client import HTTPConnection", "http_client"),
        ("import http.client", "http_client"),
        ("import httpx", "http_client"),
        ("from asyncio import open_connection", "http_client"),
        ("from asyncio import open_unix_connection", "http_client"),
        ("import socket\ndef get(path):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect(path)", "http_client"),
        ("async def get(loop):\n    await loop.create_connection(Protocol, host, 80)", "http_client"),
        ("async def get(loop, s):\n    await loop.sock_connect(s, address)", "http_client"),
        ("from rich.live import Live", "cli.live.live_view"),
    ],
)
def test_duplicate_plumbing_is_found(tmp_path: Path, statement: str, module: str) -> None:
    file = tmp_path / "src/forewarn/agent/planted.py"
    file.parent.mkdir(parents=True)
    file.write_text(statement)
    found = [plumbing.module for plumbing in PLUMBING.values() if "agent.planted" in users(tmp_path, plumbing)]
    assert found == [module]
