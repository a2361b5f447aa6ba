"""`forewarn agent …`: from agent.toml to a running agent, and what is said before and meanwhile.

Processes: `agent run` replaces the process that it is started in by the agent.
"""

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.cli.in_process import run, run_json
from tests.end_to_end.agent.single_agent import event
from tests.repository.test_contents import SERVER_PARTS
from tests.support.disks import mount_disk
from tests.support.fake_endpoint import FakeEndpoint, run_fake_endpoint
from tests.support.processes import free_ports
from tests.support.program import GUARD, PROGRAM, Machine

SECRET = "s3cret-that-nobody-sees"

ITSELF = "✓ the agent itself (state and peers)"

PLAN = """\
state = "state"

[handlers.drain]
kind = "exec"
prepare = ["/bin/true"]
importance = 90
time_limit = "20s"

[handlers.backup]
kind = "exec"
prepare = ["/bin/true"]
importance = 10
time_limit = "30s"

[[rules]]
types = ["Freeze"]
at_most = "10s"
handlers = []

[[rules]]
types = ["Preempt", "Reboot"]
handlers = ["log", "drain", "backup"]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def settings(machine: Machine, text: str) -> None:
    (machine.home / "agent.toml").write_text(text)


def until(fact: Callable[[], bool]) -> None:
    give_up_at = monotonic() + GUARD
    while not fact():
        assert monotonic() < give_up_at
        sleep(0.02)


def test_check_is_content(machine: Machine) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "check")
    assert (ended.code, ended.stderr) == (0, "All is well.\n")
    assert ended.stdout.splitlines() == [ITSELF, "✓ drain (exec)", "✓ backup (exec)", "✓ log (log)"]
    assert not (machine.home / "state").exists()


def test_check_says_what_would_not_work(machine: Machine) -> None:
    settings(machine, '[handlers.own]\nkind = "exec"\nprepare = ["/nowhere/program"]\n')
    ended = run(machine, "agent", "check")
    assert ended.code == 1
    missing = "    no such program: /nowhere/program"
    assert ended.stdout.splitlines() == [ITSELF, "✗ own (exec)", missing, "✓ log (log)"]
    assert ended.stderr == "The settings are good, but this would not work: own.\n"
    assert json.loads(run(machine, "agent", "check", "-o", "json").stdout) == [
        {"handler": "the agent itself", "kind": "state and peers", "problems": []},
        {"handler": "own", "kind": "exec", "problems": ["no such program: /nowhere/program"]},
        {"handler": "log", "kind": "log", "problems": []},
    ]


def test_self_test_that_hangs_is_given_up(machine: Machine) -> None:
    path = machine.home / "s"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        settings(
            machine,
            f'[handlers.d]\nkind = "haproxy"\nsocket = "{path}"\nservers = ["a/b"]\ntime_limit = "0.1s"\nwait = "0s"\n',
        )
        ended = run(machine, "agent", "check")
    assert ended.code == 1
    assert "its self-test came to no end within 0.1s" in ended.stdout


def test_check_looks_at_the_agent_itself(machine: Machine) -> None:
    (machine.home / "file").write_text("in the way")
    (machine.home / "secret").write_text("two words\n")
    (machine.home / "secret").chmod(0o600)
    settings(machine, 'state = "file/state"\n[peers]\nsecret_file = "secret"\n')
    ended = run(machine, "agent", "check")
    assert ended.code == 1
    assert ended.stdout.splitlines() == [
        "✗ the agent itself (state and peers)",
        f"    {machine.home}/secret: the secret must be one line of ASCII without spaces",
        f"    state: this user cannot create or write {machine.home}/file/state",
        "✓ log (log)",
    ]


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_wrong_settings_end_it_at_once(machine: Machine, command: str) -> None:
    settings(machine, "[handlers.own]\nkind = 'exce'\n")
    ended = run(machine, "agent", command)
    assert ended.code == 2
    assert ended.stderr.startswith('forewarn: agent.toml:2: handlers.own.kind takes "exec"') or ended.stderr.startswith(
        f'forewarn: {machine.home}/agent.toml:2: handlers.own.kind takes "exec"'
    )


def test_dry_run_says_for_every_type_what_would_happen(machine: Machine) -> None:
    settings(machine, PLAN)
    plans = {plan["type"]: plan for plan in run_json(machine, "agent", "check", "--dry-run")}
    assert set(plans) == {"Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"}
    assert plans["Reboot"] == {
        "type": "Reboot",
        "source": "Platform",
        "notice": "15m",
        "rule": 1,
        "notifies": ["log"],
        "steps": [{"handler": "drain", "time": "20s"}, {"handler": "backup", "time": "30s"}],
        "approval": "by the leader, when all are ready",
    }
    assert plans["Preempt"]["steps"][0] == {"handler": "drain", "time": "20s"}, "the most important step is whole"
    assert plans["Preempt"]["steps"][1]["time"] == "9s", "the other has what is left"
    assert (plans["Redeploy"]["rule"], plans["Redeploy"]["notifies"], plans["Redeploy"]["approval"]) == (
        None,
        ["log"],
        "never",
    )


def test_dry_run_says_what_does_not_fit(machine: Machine) -> None:
    settings(machine, PLAN.replace('"20s"', '"1m"'))
    ended = run(machine, "agent", "check", "--dry-run")
    (preempt,) = (line for line in ended.stdout.splitlines() if line.startswith("Preempt"))
    assert preempt.endswith("log, drain (up to 29s), backup (no time left)")


def test_dry_run_for_a_given_event(machine: Machine) -> None:
    settings(machine, PLAN)
    freeze = json.dumps(event("A", EventType="Freeze", DurationInSeconds=5))
    (plan,) = told_of(machine, freeze)
    assert (plan["type"], plan["rule"], plan["notifies"], plan["steps"]) == ("Freeze", 0, [], [])
    assert plan["approval"] == "by the leader, when it is ready"
    (plan,) = told_of(machine, json.dumps({"DocumentIncarnation": 1, "Events": [event("A")]}))
    assert plan["rule"] == 1


def told_of(machine: Machine, text: str) -> list[dict[str, object]]:
    ended = run(machine, "agent", "check", "--dry-run", "--event", "-", "-o", "json", stdin=text)
    assert ended.code == 0, ended.stderr
    found: list[dict[str, object]] = json.loads(ended.stdout)
    return found


WRONG_EVENTS = {
    "no json": ("{", "is no event as the endpoint shows it"),
    "no event": ('{"a": 1}', "is no event as the endpoint shows it"),
    "none": ('{"Events": []}', "has to have just one event"),
}


@pytest.mark.parametrize(("text", "said"), WRONG_EVENTS.values(), ids=WRONG_EVENTS)
def test_what_is_no_event_is_refused(machine: Machine, text: str, said: str) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "check", "--dry-run", "--event", "-", stdin=text)
    assert (ended.code, said in ended.stderr) == (2, True)


def test_event_without_dry_run_is_refused(machine: Machine) -> None:
    assert run(machine, "agent", "check", "--event", "x.json").code == 2


def test_status_where_no_agent_ever_ran(machine: Machine) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "status")
    assert ended.code == 1
    assert "does not run" in ended.stdout
    assert json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"] is False


class Agent:
    """An agent that runs in a process of its own."""

    def __init__(self, machine: Machine, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.machine, self.process, self._log = machine, process, log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.log.splitlines()]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GUARD)


@contextmanager
def agent(machine: Machine, *options: str, **environ: str) -> Iterator[Agent]:
    log = machine.home / "agent.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [PROGRAM, "agent", "run", *options],
            cwd=machine.home,
            env=machine.environment | environ,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
        )
    try:
        yield Agent(machine, process, log)
    finally:
        process.kill()
        process.wait(GUARD)


@pytest.fixture
def said() -> Iterator[FakeEndpoint]:
    with run_fake_endpoint("web_0") as said:
        yield said


def written(machine: Machine, state: str = "state") -> None:
    """Write settings with a hook that leaves a line for each run."""
    (port,) = free_ports(1)
    hook = machine.home / "hook"
    hook.write_text(f'#!/bin/sh\necho "$FOREWARN_PHASE" >> {machine.home}/ran\n')
    hook.chmod(0o755)
    settings(
        machine,
        f"""\
state = "{state}"
interval = "0.1s"
[http]
listen = "127.0.0.1:{port}"
[handlers.own]
kind = "exec"
prepare = ["{hook}"]
recover = ["{hook}"]
[[rules]]
handlers = ["own", "log"]
""",
    )


def ran(machine: Machine) -> list[str]:
    path = machine.home / "ran"
    return path.read_text().split() if path.exists() else []


@pytest.mark.process
def test_agent_runs_until_it_is_told_to_end(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, "--endpoint", said.url) as running:
        until(lambda: json.loads(run(machine, "agent", "status", "-o", "json").stdout)["name"] == "web_0")
        said.announce(event("A"))
        until(lambda: "prepare" in ran(machine))
        shown = run(machine, "agent", "status")
        assert (shown.code, "own: prepare" in shown.stdout) == (0, True)
        said.announce()
        until(lambda: "recover" in ran(machine))
        assert running.end() == 0


@pytest.mark.process
def test_nothing_is_imported_from_where_it_is_started(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    for name in ("asyncio", "msgspec", "forewarn"):
        (machine.home / f"{name}.py").write_text("raise SystemExit('this is not the real one')\n")
    with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
        said.announce(event("A"))
        until(lambda: "prepare" in ran(machine))
        assert running.end() == 0


@pytest.mark.process
def test_agent_needs_no_package_of_any_extra(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    blocked = f"import sys; sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))\n"
    (machine.home / "python").mkdir()
    (machine.home / "python/sitecustomize.py").write_text(blocked)
    environ = {"FOREWARN_ENDPOINT": said.url, "PYTHONPATH": str(machine.home / "python")}
    with agent(machine, **environ) as running:
        said.announce(event("A"))
        until(lambda: "prepare" in ran(machine))
        assert machine.run("agent", "status", **environ).returncode == 0
        assert running.end() == 0
    assert machine.run("agent", "check", **environ).returncode == 0


@pytest.mark.process
def test_dry_run_does_nothing_and_says_so(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, "--dry-run", FOREWARN_ENDPOINT=said.url) as running:
        said.announce(event("A"))
        until(lambda: any("would" in message for message in running.messages))
        said.announce()
        assert running.end() == 0
    assert ran(machine) == []
    assert not (machine.home / "state").exists()


@pytest.mark.process
def test_secrets_of_files_stand_in_no_log_argument_figure_or_journal(machine: Machine, said: FakeEndpoint) -> None:
    (nobody,) = free_ports(1)
    (machine.home / "secret").write_text(f"{SECRET}\n")
    (machine.home / "url").write_text(f"http://user:{SECRET}@127.0.0.1:{nobody}/{SECRET}\n")
    (port,) = free_ports(1)
    settings(
        machine,
        f"""\
state = "state"
interval = "0.1s"
[http]
listen = "127.0.0.1:{port}"
[log]
level = "debug"
[peers]
secret_file = "secret"
agents = {{ web_1 = "127.0.0.1:{nobody}" }}
[handlers.hook]
kind = "http"
url_file = "url"
secret_file = "secret"
retries = 0
ready_despite_failure = true
[[rules]]
handlers = ["hook", "log"]
""",
    )
    with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
        said.announce(event("A", "web_0", "web_1"))
        until(lambda: any("web_1" in line and "reach" in line for line in running.log.splitlines()))
        until(lambda: "no response from http://127.0.0.1" in running.log)
        arguments = Path(f"/proc/{running.process.pid}/cmdline").read_bytes()
        with socket.create_connection(("127.0.0.1", port), timeout=GUARD) as line:
            line.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            figures = b"".join(iter(lambda: line.recv(65_536), b""))
        assert running.end() == 0
        assert b"forewarn_agent" in figures
        assert SECRET.encode() not in figures + arguments
        assert SECRET not in running.log
    kept = [path.read_text() for path in (machine.home / "state").rglob("*") if path.is_file()]
    assert any("web_1" in text for text in kept)
    assert not any(SECRET in text for text in kept)


@pytest.mark.process
def test_second_agent_is_kept_away(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url):
        until(lambda: json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"])
        ended = machine.run("agent", "run", FOREWARN_ENDPOINT=said.url)
    assert ended.returncode == 2
    assert "another agent uses" in ended.stderr


@pytest.mark.process
def test_state_that_this_user_cannot_use_is_told(machine: Machine) -> None:
    (machine.home / "file").touch()
    settings(machine, 'state = "file/state"\n')
    ended = machine.run("agent", "run", FOREWARN_ENDPOINT="127.0.0.1:1")
    assert ended.returncode == 2
    assert f"state: cannot use {machine.home}/file/state: Not a directory" in ended.stderr


@pytest.mark.process
def test_agent_on_a_disk_that_takes_nothing_does_its_work(machine: Machine, said: FakeEndpoint) -> None:
    with mount_disk(machine.home / "disk", "64k"):
        written(machine, state="disk/state")
        subprocess.run(["mount", "-o", "remount,ro", str(machine.home / "disk")], check=True)
        with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
            said.announce(event("A"))
            until(lambda: said.approved == ["A"])
            assert "cannot write the workflow files: Read-only file system" in running.log
            assert running.end() == 0


@pytest.mark.process
def test_agent_ends_although_a_name_is_still_being_looked_up(machine: Machine, said: FakeEndpoint) -> None:
    """The system's resolver may take minutes, and nobody can cancel it."""
    settings(
        machine,
        'state = "state"\n[http]\nlisten = "none"\n[handlers.hook]\nkind = "http"\nurl = "http://slow.example"\n'
        '[[rules]]\nhandlers = ["hook"]\n',
    )
    (machine.home / "python").mkdir()
    (machine.home / "python/sitecustomize.py").write_text(
        f"""\
import pathlib, socket, time
quick = socket.getaddrinfo
def slow(host, *rest, **more):
    if host != "slow.example":
        return quick(host, *rest, **more)
    pathlib.Path({str(machine.home)!r}, "asked").touch()
    time.sleep(600)
socket.getaddrinfo = slow
"""
    )
    said.announce(event("A"))
    environ = {"FOREWARN_ENDPOINT": said.url, "PYTHONPATH": str(machine.home / "python")}
    with agent(machine, **environ) as running:
        until((machine.home / "asked").exists)
        assert running.end() == 0


@pytest.mark.process
def test_secret_that_is_missing_is_told(machine: Machine) -> None:
    settings(machine, 'state = "state"\n[peers]\nsecret_file = "missing"\n')
    ended = machine.run("agent", "run", FOREWARN_ENDPOINT="127.0.0.1:1")
    assert (ended.returncode, f"cannot read {machine.home}/missing" in ended.stderr) == (2, True)


@pytest.mark.process
def test_supervisor_hears_that_it_runs_and_ends(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(machine.home / "notify"))
        supervisor.settimeout(GUARD)
        with agent(machine, FOREWARN_ENDPOINT=said.url, NOTIFY_SOCKET=str(machine.home / "notify")) as running:
            assert supervisor.recv(4096).decode().startswith("READY=1\nSTATUS=Watches http://")
            assert running.end() == 0
            assert supervisor.recv(4096) == b"STOPPING=1"


@pytest.mark.process
def test_log_can_be_text_for_people(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url, FOREWARN_AGENT_LOG_FORMAT="text") as running:
        said.announce(event("A"))
        until(lambda: "Reboot of web_0: notice" in running.log)
        assert running.end() == 0
        assert not any(line.startswith("{") for line in running.log.splitlines())


@pytest.mark.process
def test_agent_keeps_nothing_of_the_command_line(machine: Machine, said: FakeEndpoint) -> None:
    """What parses options needs as much memory as the agent: it is gone when the agent runs."""
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
        until(lambda: json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"])
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
        assert "pydantic" not in maps
        assert "msgspec" in maps
