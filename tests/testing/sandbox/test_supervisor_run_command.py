"""Tests of `forewarn run` with real programs and a real service, as root and as an unprivileged user."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.api.client import ApiClient
from forewarn.api.v1 import ScheduleEvents, SetFault
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from tests.support.emulator import FOREWARN, UpOutput, forewarn_up, plain_environment
from tests.support.program import LOOPBACK
from tests.testing.sandbox.accounts import Account
from tests.testing.sandbox.vm_socket import GUARD, lines

EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
NAME = "http://169.254.169.254/metadata/instance/compute/name?api-version=2020-07-01&format=text"
CURL = ("curl", "--silent", "--show-error", "--header", "Metadata:true")
TOO_MUCH = ("--output", "/dev/null", "--write-out", "%{http_code}", "--data-binary", "@-", "--header", "Expect:")

HANDLER = """
import json, sys, urllib.request
URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
def ask(body=None):
    request = urllib.request.Request(URL, body, {"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()
for event in json.loads(ask())["Events"]:
    ask(json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode())
    print(event["EventId"])
"""
"""A handler as users write it, without any part of Forewarn."""

AGENT = """
[http]
listen = "none"

[[rules]]
types = ["Reboot"]
handlers = ["log"]
"""


class AccountService:
    """A service that runs as an account, and `forewarn run` as the same account."""

    def __init__(self, account: Account, started: UpOutput) -> None:
        self.person = account
        self.started = started

    @property
    def api(self) -> ApiClient:
        """The operator API."""
        return self.started.api()

    def run(self, vm: str, *command: str) -> "subprocess.Popen[bytes]":
        """Start a program as a VM."""
        return subprocess.Popen(
            [*self.person.within, *FOREWARN, "run", "--vm", vm, "--", *command],
            env=plain_environment(FOREWARN_DATA=self.started.data, HOME=str(self.person.home)),
            cwd=self.person.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def output(self, vm: str, *command: str) -> str:
        """Run a program as a VM, which must succeed, and return its output."""
        program = self.run(vm, *command)
        out, err = program.communicate(timeout=GUARD)
        assert program.returncode == 0, err.decode()
        return out.decode()

    def schedule(self, vm: str, type_: EventType = EventType.REBOOT) -> str:
        """Schedule an event with an hour of notice."""
        (made,) = self.api.schedule(ScheduleEvents(type=type_, vms=(vm,), notice="1h")).created
        return made.id

    def status(self, event: str) -> str | None:
        """Return the status of an event, or None if it has ended."""
        shown = self.api.event(event).event
        return None if shown is None else shown.status


@pytest.fixture(scope="module")
def account_service(account: Account) -> Iterator[AccountService]:
    with forewarn_up(account.home, within=account.within) as started:
        yield AccountService(account, started)


@pytest.fixture
def python(account: Account) -> str:
    """A Python that the account can run inside the sandbox, where it can read only public files."""
    if account.user == os.getuid():
        return sys.executable
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("the system has no Python that every user can run: install python3")
    return found


def test_curl_gets_the_vms_document_and_name(account_service: AccountService) -> None:
    event = account_service.schedule("web/web-0")
    script = f"{shlex.join([*CURL, EVENTS])}; echo; {shlex.join([*CURL, NAME])}; echo; hostname; id -u"
    document, *others = account_service.output("web-0", "sh", "-c", script).splitlines()
    assert event in [seen["EventId"] for seen in json.loads(document)["Events"]]
    assert others == ["web-0", "web-0", str(account_service.person.user)]


def test_plain_python_handler_approves(account_service: AccountService, python: str) -> None:
    event = account_service.schedule("web/web-0")
    assert event in account_service.output("web-0", python, "-c", HANDLER).splitlines()
    assert account_service.status(event) == "Started"


def test_programs_of_several_vms_run_in_parallel_with_their_own_identity(account_service: AccountService) -> None:
    names = ("web-0", "web-1", "db-0")
    programs = [account_service.run(name, *CURL, *[NAME] * 20) for name in names]
    answers = [program.communicate(timeout=GUARD)[0].decode() for program in programs]
    assert answers == [name * 20 for name in names]


def test_other_vms_and_the_operator_api_cannot_be_reached(account_service: AccountService) -> None:
    urls = (*account_service.started.guest_urls.values(), account_service.started.operator_url)
    sockets = Path(account_service.started.data) / "sockets"
    tried = f'for url in {" ".join(urls)}; do curl --silent "$url" && echo "$url answers"; done; echo all tried'
    assert account_service.output("web-0", "sh", "-c", f"{tried}; ls -A {shlex.quote(str(sockets))}") == "all tried\n"
    assert list(sockets.iterdir()) != []


def test_fault_affects_the_program(account_service: AccountService) -> None:
    """Even a reset, which Unix sockets do not have; responses before it are not lost."""
    account_service.api.set_fault(SetFault(kind=FaultKind.RESET, vm="db-0", times=1))
    script = f"{shlex.join([*CURL, EVENTS])}; echo; {shlex.join([*CURL, NAME])}"
    program = account_service.run("db-0", "sh", "-c", script)
    out, err = program.communicate(timeout=GUARD)
    assert (program.returncode, out) == (0, b"\ndb-0")
    assert b"reset" in err


def test_approval_that_is_too_large_gets_413(account_service: AccountService) -> None:
    script = f"head -c 3000000 /dev/zero | {shlex.join([*CURL, *TOO_MUCH, EVENTS])}"
    assert account_service.output("web-0", "sh", "-c", script) == "413"


def test_only_the_owner_can_access_the_sockets(account_service: AccountService) -> None:
    path = Path(account_service.api.open_socket("web-0").path)
    assert account_service.api.open_socket("web/web-0").path == str(path)
    assert account_service.api.open_socket("web-1").path != str(path)
    assert [oct(file.stat().st_mode & 0o777) for file in (path.parent, path)] == ["0o700", "0o600"]
    assert {path.parent.stat().st_uid, path.stat().st_uid} == {account_service.person.user}


def test_options_after_the_program_belong_to_the_program(account_service: AccountService) -> None:
    command = [
        *account_service.person.within,
        *FOREWARN,
        "run",
        "--vm",
        "web-0",
        "sh",
        "-c",
        'echo "$@"',
        "--",
        "--vm",
        "x",
    ]
    ended = subprocess.run(
        command,
        env=plain_environment(FOREWARN_DATA=account_service.started.data),
        cwd=account_service.person.home,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "--vm x\n", "")


def test_signal_to_the_command_reaches_the_program(account_service: AccountService) -> None:
    program = account_service.run(
        "web-0", "sh", "-c", "trap 'echo asked to end; exit 9' TERM; echo ready; sleep 600 & wait"
    )
    seen = lines(program)
    assert next(seen) == "ready"
    program.send_signal(signal.SIGTERM)
    assert next(seen) == "asked to end"
    program.communicate(timeout=GUARD)
    assert program.returncode == 9


@pytest.fixture(scope="module")
def own_service(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountService]:
    """A service whose socket paths are longer than the 107 bytes of a Unix socket's address."""
    deep = tmp_path_factory.mktemp("own") / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with forewarn_up(deep) as started:
        yield AccountService(Account((), deep, os.getuid()), started)


class TestOurOwnPrograms:
    """The client and the agent, with the Python of the tests."""

    def test_client_finds_its_endpoint_and_watches_changes(self, own_service: AccountService) -> None:
        watching = own_service.run("web-0", *FOREWARN, "guest", "watch", "-o", "json")
        first = own_service.schedule("web/web-0")
        seen = lines(watching)
        assert first in next(line for line in seen if first in line)
        own_service.output("web-0", *FOREWARN, "guest", "approve", first)
        assert own_service.status(first) == "Started"
        assert "Started" in next(line for line in seen if "Started" in line)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=GUARD)
        assert watching.returncode == 0

    def test_agent_approves_events_of_its_rules(self, own_service: AccountService) -> None:
        settings = own_service.person.home / "agent.toml"
        settings.write_text(AGENT)
        state = str(own_service.person.home / "state")
        event = own_service.schedule("web/web-0")
        agent = own_service.run("web-0", *FOREWARN, "agent", "run", "--config", str(settings), "--state", state)
        try:
            while own_service.status(event) == "Scheduled":
                assert agent.poll() is None, agent.communicate()[1].decode()
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate(timeout=GUARD)
        assert own_service.status(event) == "Started"

    def test_sockets_of_another_emulator_of_the_user_are_refused(self, sandboxes: None, tmp_path: Path) -> None:
        with _up(tmp_path / "one") as one, _up(tmp_path / "two") as two:
            paths = [Path(service.api.open_socket("web-1").path) for service in (one, two)]
            outside = subprocess.run(
                [sys.executable, "-c", ASK, str(paths[1])], capture_output=True, text=True, timeout=GUARD, check=True
            )
            program = one.run("web-0", sys.executable, "-c", ASK, *map(str, paths))
            out, err = (text.decode() for text in program.communicate(timeout=GUARD))
        assert outside.stdout == "web-1\n"
        assert (out, err) == ("FileNotFoundError\nrefused\n", ""), "its own is hidden, the other one refuses"

    def test_program_reconnects_to_a_restarted_service(self, sandboxes: None, tmp_path: Path) -> None:
        """After a stop and after a kill; the sockets of all VMs stay hidden."""
        data = tmp_path / "data"
        with _up(data) as first:
            program = first.run("web-0", sys.executable, "-u", "-c", PATIENT, str(data / "sockets"))
            seen = lines(program)
            assert next(seen) == "web-0 []"
            first.end(signal.SIGINT)
        for how in (signal.SIGKILL, signal.SIGINT):
            assert next(seen) == "ended"
            with _up(data) as again:
                assert again.api.open_socket("web-1").path
                _say(program, "go on")
                assert next(seen) == "web-0 []"
                again.end(how)
        assert next(seen) == "ended"
        program.communicate(timeout=GUARD)
        assert program.returncode == 0


ASK = """
import os, socket, sys
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(120)
        try:
            os.chdir(os.path.dirname(path))  # an address has room for 107 bytes
            connection.connect(os.path.basename(path))
            head = "GET /metadata/instance/compute/name?api-version=2020-09-01&format=text HTTP/1.1"
            connection.sendall(f"{head}\\r\\nHost: x\\r\\nMetadata: true\\r\\nConnection: close\\r\\n\\r\\n".encode())
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
            print(reply.rpartition(b"\\r\\n\\r\\n")[2].decode() or "refused")
        except (ConnectionError, BrokenPipeError):
            print("refused")
        except OSError as error:
            print(type(error).__name__)
"""

PATIENT = """
import os, socket, sys
def ask():
    asking = socket.create_connection(("169.254.169.254", 80), timeout=120)
    path = "/metadata/instance/compute/name?api-version=2020-07-01&format=text"
    asking.sendall(f"GET {path} HTTP/1.1\\r\\nHost: x\\r\\nMetadata: true\\r\\n\\r\\n".encode())
    print(asking.recv(65536).decode().rpartition("\\n")[2], os.listdir(sys.argv[1]))
    return asking
for _ in range(3):
    held = ask()
    while held.recv(65536):
        pass
    print("ended")
    sys.stdin.readline()
"""
"""Polls, waits for the end of its connection, and polls again after a line on stdin."""


class RestartableService(AccountService):
    """A service whose data directory is kept."""

    def __init__(self, process: "subprocess.Popen[bytes]", started: UpOutput) -> None:
        super().__init__(Account((), Path(started.data), os.getuid()), started)
        self._process = process

    def end(self, how: signal.Signals) -> None:
        """End the service with a signal."""
        self._process.send_signal(how)
        self._process.wait(GUARD)


@contextmanager
def _up(data: Path) -> Iterator[RestartableService]:
    options = ("--data", str(data), "--operator", "127.0.0.1:0", "--listen", f"{LOOPBACK}:0")
    command = [*FOREWARN, "up", *options, "--output", "json"]
    with subprocess.Popen(command, env=plain_environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield RestartableService(process, msgspec.json.decode(process.stdout.readline(), type=UpOutput))
        finally:
            process.kill()


def _say(program: "subprocess.Popen[bytes]", what: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{what}\n".encode())
    program.stdin.flush()
