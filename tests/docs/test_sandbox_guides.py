"""The guides for programs in sandboxes: their commands run, with small stand-ins for what the reader has."""

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.testing import sandbox
from forewarn.testing.service import Forewarn
from tests.docs.console import PATIENCE
from tests.support.canned_server import run_canned_server
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

GUIDES = Path(__file__).parents[2] / "docs/howto"
PROGRAM = Path(sys.executable).parent / "forewarn"
SHOWN_PORT = "8001"
GUARD = 120.0

HANDLER = f"""#!{sys.executable}
import json, os, time, urllib.request
EVENTS = os.environ.get("EVENTS", "http://169.254.169.254") + "/metadata/scheduledevents?api-version=2020-07-01"
API = "http://127.0.0.1:PORT/api/v1/nodes/" + os.environ["HOSTNAME"]
direct = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
done = set()
def send(url, body=None):
    return direct.open(urllib.request.Request(url, body, {{"Metadata": "true"}}), timeout=130).read()
while True:
    for event in json.loads(send(EVENTS))["Events"]:
        mine = os.environ["HOSTNAME"] in event["Resources"]
        if mine and event["EventStatus"] == "Scheduled" and event["EventId"] not in done:
            if "PORT".isdigit():
                send(API, b'{{"spec": {{"unschedulable": true}}}}')
            send(EVENTS, json.dumps({{"StartRequests": [{{"EventId": event["EventId"]}}]}}).encode())
            done.add(event["EventId"])
    time.sleep(0.2)
"""
"""A handler that cordons its node before it approves."""


@pytest.fixture(autouse=True)
def sandboxes() -> None:
    if (reason := sandbox.unavailable_reason()) is not None:
        pytest.skip(reason)


def commands_of(guide: str) -> list[str]:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    return re.findall(r"^ *\$ (forewarn .*)$", text, re.MULTILINE)


def typed(command: str, **replaced: str) -> list[str]:
    for old, new in replaced.items():
        command = command.replace(old.removeprefix("_"), new)
    return [str(PROGRAM), *shlex.split(command)[1:]]


@contextmanager
def running(command: list[str], directory: Path, environ: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command until the context ends."""
    with subprocess.Popen(command, cwd=directory, env=os.environ | environ) as program:
        try:
            yield program
        finally:
            program.terminate()
            program.wait(GUARD)


def save_handler(directory: Path, port: str) -> None:
    handler = directory / "my-handler"
    handler.write_text(HANDLER.replace("PORT", port))
    handler.chmod(0o755)


def test_kubernetes_handler_cordons_its_node_and_approves(tmp_path: Path) -> None:
    (fleet,) = re.findall(
        r"^ *```toml\n(.*?)^ *```$", (GUIDES / "test-a-kubernetes-handler.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "nodes.toml").write_text(textwrap.dedent(fleet))
    requests: list[tuple[str, bytes]] = []

    def api_server(path: str, body: bytes) -> tuple[int, bytes]:
        # The server and the service are in one process, so `--reach` asks whether this port is one of the service.
        if path != "/metadata/versions":
            requests.append((path, body))
        return 200, b"{}"

    check, schedule, run, exam = commands_of("test-a-kubernetes-handler.md")
    with run_canned_server(api_server) as url, Forewarn(tmp_path / "nodes.toml") as forewarn:
        port = {f"_{SHOWN_PORT}": str(urlsplit(url).port)}
        save_handler(tmp_path, port[f"_{SHOWN_PORT}"])
        environ = dict(forewarn.environment)
        for command in (check, schedule):
            subprocess.run(typed(command, **port), cwd=tmp_path, env=os.environ | environ, check=True, timeout=GUARD)
        assert requests == [("/version", b"")]
        with running(typed(run, **port), tmp_path, environ):
            wait_until(lambda: any(found.status == "Started" for found in forewarn.api.events()), "the approval")
        assert requests[1:] == [("/api/v1/nodes/node-0", b'{"spec": {"unschedulable": true}}')]
        done = subprocess.run(
            [*typed(exam, **port)[:2], "--output", "json", *typed(exam, **port)[2:]],
            cwd=tmp_path,
            env=os.environ | PATIENCE,
            check=False,
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert json.loads(done.stdout), done.stderr
        assert done.returncode == 0, done.stdout


def test_handler_for_microsofts_mock_runs_unchanged(tmp_path: Path) -> None:
    (run,) = commands_of("coming-from-microsofts-mock.md")
    save_handler(tmp_path, "none")
    with Forewarn() as forewarn:
        forewarn.schedule("Reboot", "web-0")
        with running(typed(run), tmp_path, forewarn.environment | {"EVENTS": "http://127.0.0.1:80"}):
            wait_until(lambda: any(found.status == "Started" for found in forewarn.api.events()), "the approval")
