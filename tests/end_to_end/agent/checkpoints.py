"""Checkpoint server: programs under test report what they are about to do, then wait for the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import NamedTuple

from tests.support.processes import GUARD

SCRIPT = """\
#!/bin/sh
exec curl --silent --show-error --fail --noproxy '*' --max-time {guard:.0f} --data '' {url}/{path}
"""


class CheckpointCall(NamedTuple):
    """The next action of a program: a phase of a VM's agent, or the platform's reboot of a VM."""

    what: str
    vm: str
    attempt: int = 1


CheckpointAction = Callable[[CheckpointCall], None]


class CheckpointServer:
    """Records every call in order, and runs the actions that a test set for it while the caller waits."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._calls: list[CheckpointCall] = []
        self._next_actions: dict[tuple[str, str], CheckpointAction] = {}
        self._permanent_actions: dict[str, CheckpointAction] = {}
        self.errors: list[str] = []

    def on_next(self, what: str, vm: str, action: CheckpointAction) -> None:
        """Run an action at the next such call, before the caller continues."""
        self._next_actions[what, vm] = action

    def on_every(self, what: str, action: CheckpointAction) -> None:
        """Run an action at every such call."""
        self._permanent_actions[what] = action

    @property
    def calls(self) -> list[CheckpointCall]:
        """All calls so far."""
        with self._changed:
            return list(self._calls)

    def wait_for(self, what: str, vm: str, *, times: int = 1) -> None:
        """Wait for this number of such calls."""
        with self._changed:
            heard = self._changed.wait_for(lambda: self._count(what, vm) >= times, GUARD)
            assert heard, f"timeout: waited for {what} of {vm}; received {self._calls}"

    def clear_calls(self) -> None:
        """Forget the calls so far."""
        with self._changed:
            self._calls.clear()

    def handle(self, call: CheckpointCall) -> None:
        """Record a call; the caller waits until this returns."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        actions = (self._next_actions.pop((call.what, call.vm), None), self._permanent_actions.get(call.what))
        for action in actions:
            if action is not None:
                action(call)

    def _count(self, what: str, vm: str) -> int:
        return sum(1 for call in self._calls if (call.what, call.vm) == (what, vm))


@contextmanager
def run_checkpoint_server() -> Iterator[tuple[CheckpointServer, str]]:
    """Run a checkpoint server; yield it and the URL that programs of the lab call: POST /what/vm/attempt."""
    heard = CheckpointServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            _, what, vm, *attempt = self.path.split("/")
            try:
                heard.handle(CheckpointCall(what, vm, int(attempt[0]) if attempt else 1))
                status = 200
            except Exception as error:  # noqa: BLE001 - the test has to learn of it, whatever it is
                heard.errors.append(f"{self.path}: {error!r}")
                status = 500
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield heard, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def write_checkpoint_script(path: Path, url: str, call: str, *, before: str = "") -> None:
    """Write a script that makes such a call and waits for the response; the shell expands `call`."""
    script = SCRIPT.format(guard=GUARD, url=url, path=call)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script.replace("exec ", f"{before}\nexec ") if before else script)
    path.chmod(0o755)
