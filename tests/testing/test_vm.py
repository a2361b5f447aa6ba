"""A VM of the in-test service: its names and addresses, and programs that run as it."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.client.errors import ClientError
from forewarn.testing import Forewarn, sandbox
from forewarn.testing.vm import EVENTS_PATH, Vm


class FakeApi:
    """A service that opens sockets."""

    def open_socket(self, vm: str) -> object:
        return SimpleNamespace(path=f"/sockets/{vm.replace('/', '.')}")


def a_vm(url: str = "http://127.0.0.1:8180") -> Vm:
    api: Any = FakeApi()
    return Vm(api, "web", "web-0", url, [])


def test_vm_has_a_full_name_a_url_and_an_environment() -> None:
    vm = a_vm()
    assert (vm.full_name, str(vm), vm.events_url) == ("web/web-0", "web/web-0", f"http://127.0.0.1:8180{EVENTS_PATH}")
    assert vm.environment == {"FOREWARN_ENDPOINT": "http://127.0.0.1:8180"}
    assert repr(vm) == "<VM web/web-0 at http://127.0.0.1:8180>"


def test_socket_is_opened_by_the_full_name() -> None:
    assert a_vm().socket == Path("/sockets/web.web-0")


def test_poll_of_an_endpoint_that_is_gone_fails_at_once() -> None:
    with pytest.raises(ClientError):
        a_vm("http://127.0.0.1:1").document()


def test_approval_names_at_least_one_event() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        a_vm().approve()


def need_sandboxes() -> None:
    if (reason := sandbox.unavailable_reason()) is not None:
        pytest.skip(reason)


HANDLER = """
import json, socket, urllib.request
url = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
def send(body=None):
    return urllib.request.urlopen(urllib.request.Request(url, body, {"Metadata": "true"})).read()
for event in json.loads(send())["Events"]:
    send(json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode())
    print(socket.gethostname(), "approved", *event["Resources"])
"""
ENDLESS = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    print("running", flush=True)
while True:
    time.sleep(60)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS


@pytest.mark.process
def test_program_runs_as_the_vm(tmp_path: Path) -> None:
    """Its URL is hard-coded; it sees the VM's endpoint, and its host name."""
    need_sandboxes()
    (tmp_path / "handler.py").write_text(HANDLER)
    with Forewarn() as forewarn:
        vm = forewarn.vm("web-1")
        event = forewarn.schedule("Reboot", vm)
        with vm.run([sys.executable, Path("handler.py")], cwd=tmp_path, stdout=subprocess.PIPE) as program:
            output, _ = program.communicate(timeout=60)
        assert (program.returncode, output) == (0, "web-1 approved web-1\n")
        assert forewarn.approvals(vm) == [event.id]


def run_endless(vm: Vm, source: str) -> Any:
    program = vm.run([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    return program


@pytest.mark.process
def test_program_ends_with_its_context() -> None:
    need_sandboxes()
    with Forewarn() as forewarn:
        with run_endless(forewarn.vm(), ENDLESS) as program:
            assert program.poll() is None
        assert program.returncode == 128 + signal.SIGTERM


@pytest.mark.process
@pytest.mark.parametrize("source", [ENDLESS, STUBBORN], ids=["endless", "stubborn"])
def test_children_end_with_the_program(source: str) -> None:
    """The child ignores SIGTERM; when it has ended, nobody can write to the pipe."""
    need_sandboxes()
    with Forewarn() as forewarn, run_endless(forewarn.vm(), source) as program:
        assert program.stop(timeout=0.1 if source == STUBBORN else 60) in {-signal.SIGKILL, 128 + signal.SIGTERM}
        assert program.stdout.read() == ""


@pytest.mark.process
def test_program_ends_with_the_service() -> None:
    need_sandboxes()
    with Forewarn() as forewarn:
        program = run_endless(forewarn.vm(), ENDLESS)
    assert program.returncode == 128 + signal.SIGTERM


def test_program_cannot_run_as_a_vm_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(sandbox.NamespacesUnavailable, match="only on Linux"):
        a_vm().run(["true"])
