"""`forewarn agent …`: from agent.toml to a running agent, its checks and its status.

Processes: `agent run` replaces its process by the agent.
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

from forewarn.agent.settings import load
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


def test_check_passes_with_valid_settings(machine: Machine) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "check")
    assert (ended.code, ended.stderr) == (0, "All checks passed.\n")
    assert ended.stdout.splitlines() == [ITSELF, "✓ drain (exec)", "✓ backup (exec)", "✓ log (log)"]
    assert not (machine.home / "state").exists()


def test_check_without_a_file_says_where_it_looked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "SYSTEM_FILE", machine.home / "etc/agent.toml")
    ended = run(machine, "agent", "check", "--state", str(machine.home / "state"))
    first, last = ended.stderr.splitlines()
    here, system = machine.home / "agent.toml", machine.home / "etc/agent.toml"
    assert first.startswith(f"No settings file was found: there is neither {here} nor {system}. ")
    assert (ended.code, last) == (0, "The defaults passed all checks.")
    planned = run(machine, "agent", "check", "--dry-run", "-o", "json")
    assert planned.stderr == f"{first}\n"


def test_invalid_setting_is_reported_with_its_flag_or_variable(machine: Machine) -> None:
    flag = run(machine, "agent", "check", "--endpoint", "http://x/y", FOREWARN_ENDPOINT="x")
    variable = run(machine, "agent", "check", FOREWARN_ENDPOINT="http://x/y")
    state = run(machine, "agent", "status", "--state", "\0")
    starts = ("--endpoint: endpoint takes ", "FOREWARN_ENDPOINT: endpoint takes ", "--state: state takes ")
    for ended, start in zip((flag, variable, state), starts, strict=True):
        assert ended.code == 2
        assert ended.stderr.startswith(f"forewarn: {start}")


def test_check_reports_failed_self_tests(machine: Machine) -> None:
    settings(machine, '[handlers.own]\nkind = "exec"\nprepare = ["/nowhere/program"]\n')
    ended = run(machine, "agent", "check")
    assert ended.code == 1
    missing = "    no such program: /nowhere/program"
    assert ended.stdout.splitlines() == [ITSELF, "✗ own (exec)", missing, "✓ log (log)"]
    assert ended.stderr == "The settings are valid, but these self-tests failed: own.\n"
    assert json.loads(run(machine, "agent", "check", "-o", "json").stdout) == [
        {"handler": "the agent itself", "kind": "state and peers", "problems": []},
        {"handler": "own", "kind": "exec", "problems": ["no such program: /nowhere/program"]},
        {"handler": "log", "kind": "log", "problems": []},
    ]


def test_hanging_self_test_times_out(machine: Machine) -> None:
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
    assert "self-test did not finish within 0.1s" in ended.stdout


def test_check_includes_the_agent_itself(machine: Machine) -> None:
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
def test_invalid_settings_exit_with_2(machine: Machine, command: str) -> None:
    settings(machine, "[handlers.own]\nkind = 'exce'\n")
    ended = run(machine, "agent", command)
    assert ended.code == 2
    assert ended.stderr.startswith('forewarn: agent.toml:2: handlers.own.kind takes "exec"') or ended.stderr.startswith(
        f'forewarn: {machine.home}/agent.toml:2: handlers.own.kind takes "exec"'
    )


def test_dry_run_shows_the_plan_of_every_event_type(machine: Machine) -> None:
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
    assert plans["Preempt"]["steps"][0] == {"handler": "drain", "time": "20s"}, (
        "the most important step has its whole time"
    )
    assert plans["Preempt"]["steps"][1]["time"] == "9s", "the other step has the remaining time"
    assert (plans["Redeploy"]["rule"], plans["Redeploy"]["notifies"], plans["Redeploy"]["approval"]) == (
        None,
        ["log"],
        "never",
    )


def test_dry_run_shows_handlers_without_time_left(machine: Machine) -> None:
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
    "invalid JSON": ("{", "is not an event in the endpoint's format"),
    "not an event": ('{"a": 1}', "is not an event in the endpoint's format"),
    "none": ('{"Events": []}', "must contain exactly one event"),
}


@pytest.mark.parametrize(("text", "said"), WRONG_EVENTS.values(), ids=WRONG_EVENTS)
def test_invalid_event_file_is_refused(machine: Machine, text: str, said: str) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "check", "--dry-run", "--event", "-", stdin=text)
    assert (ended.code, said in ended.stderr) == (2, True)


def test_event_without_dry_run_is_refused(machine: Machine) -> None:
    assert run(machine, "agent", "check", "--event", "x.json").code == 2


def test_status_without_any_agent(machine: Machine) -> None:
    settings(machine, PLAN)
    ended = run(machine, "agent", "status")
    assert ended.code == 1
    assert "not running" in ended.stdout
    assert json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"] is False


class Agent:
    """An agent in a separate process."""

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
    """Write settings with a hook that writes a line per run."""
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
def test_agent_runs_until_a_stop_signal(machine: Machine, said: FakeEndpoint) -> None:
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
def test_agent_imports_nothing_from_the_working_directory(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    for name in ("asyncio", "msgspec", "forewarn"):
        (machine.home / f"{name}.py").write_text("raise SystemExit('this is not the real one')\n")
    with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
        said.announce(event("A"))
        until(lambda: "prepare" in ran(machine))
        assert running.end() == 0


@pytest.mark.process
def test_agent_runs_without_extras(machine: Machine, said: FakeEndpoint) -> None:
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
def test_dry_run_only_logs(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, "--dry-run", FOREWARN_ENDPOINT=said.url) as running:
        said.announce(event("A"))
        until(lambda: any("would" in message for message in running.messages))
        said.announce()
        assert running.end() == 0
    assert ran(machine) == []
    assert not (machine.home / "state").exists()


@pytest.mark.process
def test_secrets_of_files_never_appear_in_logs_arguments_metrics_or_journal(
    machine: Machine, said: FakeEndpoint
) -> None:
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
def test_second_agent_on_the_same_state_is_refused(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url):
        until(lambda: json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"])
        ended = machine.run("agent", "run", FOREWARN_ENDPOINT=said.url)
    assert ended.returncode == 2
    assert "another agent uses" in ended.stderr


@pytest.mark.process
def test_inaccessible_state_directory_is_reported(machine: Machine) -> None:
    (machine.home / "file").touch()
    settings(machine, 'state = "file/state"\n')
    ended = machine.run("agent", "run", FOREWARN_ENDPOINT="127.0.0.1:1")
    assert ended.returncode == 2
    assert f"state: cannot use {machine.home}/file/state: Not a directory" in ended.stderr


@pytest.mark.process
def test_agent_works_on_a_full_disk(machine: Machine, said: FakeEndpoint) -> None:
    with mount_disk(machine.home / "disk", "64k"):
        written(machine, state="disk/state")
        subprocess.run(["mount", "-o", "remount,ro", str(machine.home / "disk")], check=True)
        with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
            said.announce(event("A"))
            until(lambda: said.approved == ["A"])
            assert "cannot write the workflow files: Read-only file system" in running.log
            assert running.end() == 0


@pytest.mark.process
def test_agent_stops_during_a_hanging_dns_lookup(machine: Machine, said: FakeEndpoint) -> None:
    """The system's resolver may take minutes and cannot be cancelled."""
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
def test_missing_secret_is_reported(machine: Machine) -> None:
    settings(machine, 'state = "state"\n[peers]\nsecret_file = "missing"\n')
    ended = machine.run("agent", "run", FOREWARN_ENDPOINT="127.0.0.1:1")
    assert (ended.returncode, f"cannot read {machine.home}/missing" in ended.stderr) == (2, True)


@pytest.mark.process
def test_systemd_is_notified_of_start_and_stop(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(machine.home / "notify"))
        supervisor.settimeout(GUARD)
        with agent(machine, FOREWARN_ENDPOINT=said.url, NOTIFY_SOCKET=str(machine.home / "notify")) as running:
            assert supervisor.recv(4096).decode().startswith("READY=1\nSTATUS=Watching http://")
            assert running.end() == 0
            assert supervisor.recv(4096) == b"STOPPING=1"


@pytest.mark.process
def test_log_format_can_be_text(machine: Machine, said: FakeEndpoint) -> None:
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url, FOREWARN_AGENT_LOG_FORMAT="text") as running:
        said.announce(event("A"))
        until(lambda: "Reboot of web_0: notice" in running.log)
        assert running.end() == 0
        assert not any(line.startswith("{") for line in running.log.splitlines())


@pytest.mark.process
def test_agent_process_does_not_import_the_command_line_parser(machine: Machine, said: FakeEndpoint) -> None:
    """The modules that parse options need as much memory as the agent."""
    written(machine)
    with agent(machine, FOREWARN_ENDPOINT=said.url) as running:
        until(lambda: json.loads(run(machine, "agent", "status", "-o", "json").stdout)["is_running"])
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
        assert "pydantic" not in maps
        assert "msgspec" in maps
