"""The real service and the real agent in processes of their own, and programs that do what a test tells them to."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_service, read_token
from tests.support.program import GUARD, LOOPBACK, PROGRAM

CLOSED = f"http://{LOOPBACK}:9/"
"""Where nothing listens. The ports in the stored data are free at the address of this process."""

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"

SETTINGS = """
data = "data"
fleet = "fleet.toml"
listen = "{address}:8180"
operator = "{address}:0"
manual_time = {manual_time}
platform = "command"
[command]
program = ["{directory}/maintain"]
at_once = 64
attempts = 1000
[gates.health]
command = ["{directory}/gate"]
retries = 0
[policy]
announce = "when-enabled"
enforce_notice = true
idle_after = "3h"
[journal]
age = "none"
[campaigns]
webhooks = ["{webhook}"]
"""

MAINTAIN = """#!/bin/sh
# Does what the files in carry-out/ and probe/ say of the VM; by default it succeeds.
cd "$(dirname "$0")"
echo "$FOREWARN_PHASE $FOREWARN_SCOPE/$FOREWARN_VM $FOREWARN_ATTEMPT" >> maintained
env | grep ^FOREWARN_ | sort > "$FOREWARN_VM.variables"
cat > "$FOREWARN_VM.input"
behaviour=$(cat "$FOREWARN_PHASE/$FOREWARN_VM" 2>/dev/null || echo succeed)
case $behaviour in
succeed) [ "$FOREWARN_EVENT_TYPE" != Redeploy ] || echo hv-spare ;;
fail) echo "no power" >&2; exit 1 ;;
later) exit 75 ;;
hang) exec sleep 3600 ;;
esac
"""

GATE = """#!/bin/sh
cd "$(dirname "$0")"
env | grep ^FOREWARN_ | sort > gate-variables
[ -e gate-is-open ] || { echo "error rate 7%" >&2; exit 1; }
"""


class Service:
    """The service on the data directory `data` below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        write_program(directory / "maintain", MAINTAIN)
        write_program(directory / "gate", GATE)

    def start(self, *, manual_time: bool = True, webhook: str = CLOSED) -> None:
        """Start it and wait until it serves."""
        settings = SETTINGS.format(
            address=LOOPBACK, directory=self.directory, manual_time=str(manual_time).lower(), webhook=webhook
        )
        (self.directory / "forewarn.toml").write_text(settings)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "up"],
                cwd=self.directory,
                env=environment(self.directory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        wait_for(lambda: read_service(self.data) is not None, self._check_alive)

    @contextmanager
    def running(self, *, webhook: str = CLOSED) -> Iterator[ApiClient]:
        """Run it while the context lasts."""
        self.start(webhook=webhook)
        try:
            yield self.api()
        finally:
            self.stop()

    def stop(self) -> None:
        """Have it save everything and end; programs that it has started go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(GUARD) == 0, (self.directory / "log").read_text()

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(GUARD)

    def api(self, token: str | None = None) -> ApiClient:
        """Return a client, with the token of the data directory unless another one is given."""
        return ApiClient(self.url, token or read_token(self.data / "token"))

    @property
    def url(self) -> str:
        """Where operators are served."""
        running = read_service(self.data)
        assert running is not None
        return running.operator_url

    def behave(self, vm: str, behaviour: str, *, phase: str = "carry-out") -> None:
        """Say what the program does about a VM: succeed, fail, later or hang."""
        (self.directory / phase).mkdir(exist_ok=True)
        (self.directory / phase / vm).write_text(behaviour)

    def maintained(self) -> list[str]:
        """Return the calls of the program: phase, VM and attempt."""
        return (self.directory / "maintained").read_text().splitlines()

    def end_programs(self) -> None:
        """End the programs that hang."""
        for note in (self.data / "work").glob("*.note"):
            os.killpg(msgspec.json.decode(note.read_bytes())["pid"], signal.SIGKILL)

    def _check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()


@contextmanager
def agent(directory: Path, endpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent with the settings and the state directory that are in a directory; end it by SIGKILL."""
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [PROGRAM, "agent", "run", "--endpoint", endpoint],
            cwd=directory,
            env=environment(directory) | {"PATH": f"{directory}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(GUARD)


def environment(home: Path) -> dict[str, str]:
    """Return an environment without settings."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(home)}


def write_program(path: Path, text: str) -> None:
    """Write a program that can be run."""
    path.write_text(text)
    path.chmod(0o755)


def wait_for(condition: Callable[[], object], check: Callable[[], None] = lambda: None) -> None:
    """Wait until something is so."""
    end = time.monotonic() + GUARD
    while not condition():
        check()
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def get(url: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Send a GET, or a POST if there is a body; return the body of the response."""
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=GUARD)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request("GET" if body is None else "POST", target, body, dict(headers))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status == 200, content
    return content


def ask_as(guest_url: str | None, body: bytes | None = None) -> bytes:
    """Ask for events as a VM does, or approve some."""
    assert guest_url is not None
    return get(guest_url + EVENTS, {"Metadata": "true"}, body)
