"""`forewarn exam`: output, reports and exit code.

Processes: every examined handler is a program.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from forewarn.testing import Forewarn, exam, sandbox
from forewarn.testing.exam import exam_scenarios, scenario_run
from forewarn.testing.exam import handler as candidate
from tests.cli.in_process import run, run_json, run_table
from tests.support.program import GUARD, PROGRAM, Machine

HANDLER = Path(__file__).parents[2] / "testing/exam/sample_handler.py"
TOLD_URL = ("--url-variable", "EXAM_URL")
ONE = ("--only", "user-restart")
SLOW = 5.0
IN_VAIN = ("--patience", "1")
"""For a handler that never approves, the exam waits until a timeout: a longer one would not change the result."""


@pytest.fixture(autouse=True)
def patient(machine: Machine) -> None:
    """Extend the time limits, because the machine may be slow."""
    machine.environment["FOREWARN_PATIENCE"] = str(SLOW)


def handler(error: str) -> tuple[str, ...]:
    return ("--", sys.executable, str(HANDLER), error)


@pytest.mark.process
def test_correct_handler_exits_with_0_and_a_summary(machine: Machine) -> None:
    ended = run(machine, "exam", *ONE, *TOLD_URL, *handler("none"))
    assert ended.code == 0, ended.stderr
    assert ended.stdout == "1 scenario: 1 passed.\n"
    assert ended.stderr.splitlines() == [
        "1 scenario: at most 2m30s if it polls every second.",
        "✓ user-restart",
        "Checks: 9 kept, 0 broken, 2 not judged.",
        (
            "Not judged: 1 × no marker file: use --prepared FILE; 1 × no marker file: use --recovered FILE. "
            "`--all` shows each."
        ),
    ]


@pytest.mark.process
def test_finding_shows_expected_and_observed_behaviour(machine: Machine) -> None:
    ended = run(machine, "exam", "--only", "empty-body", *TOLD_URL, *handler("crashes on an empty body"))
    assert ended.code == 1
    lines = ended.stdout.splitlines()
    assert lines[:3] == [
        "1 scenario: 1 failed.",
        "✗ keeps-running: failed in empty-body",
        "    expected:  it must keep running during the whole scenario",
    ]
    assert re.fullmatch(
        r"    seen:      it ended with exit code 1 at \d+\.\d s; last line of output: json\..*", lines[3]
    )
    assert re.fullmatch(rf"    at:        {re.escape(str(HANDLER))}:\d+ in look", lines[4])
    assert len(lines) == 5
    assert ended.stderr.splitlines()[1] == "✗ empty-body: keeps-running"


def test_slow_machine_is_not_a_finding_about_the_program(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Scenarios that were too slow run again, one by one; then the exam reports them as unfinished with advice."""
    monkeypatch.setattr(exam, "LIMIT", 0.001)
    monkeypatch.setattr(scenario_run, "STALLED_SHARE", -1.0)  # as if the exam had measured a busy machine
    report = tmp_path / "exam.xml"
    two = (*ONE, "--only", "live-migration", "--junit", str(report))
    ended = run(machine, "exam", *two, *TOLD_URL, *handler("none"))
    assert ended.code == 6
    lines = ended.stderr.splitlines()
    late = "the machine was too slow"
    assert lines[0] == "2 scenarios, 2 at a time: at most 1s if it polls every second."
    assert [line.partition(": ")[2].startswith(late) for line in (*lines[1:3], *lines[4:6])] == [True] * 4
    assert lines[3] == (
        "The machine was too busy for live-migration, user-restart. Running them again, one by one: at most 1s."
    )
    assert lines[-2] == (
        "Not finished: live-migration, user-restart: the machine was too slow, which is not a finding about the "
        "program. Run them again when it is less busy, or give them more time:"
    )
    assert lines[-1].startswith("  forewarn exam --only live-migration --only user-restart --patience 15 … -- ")
    assert ended.stdout.splitlines()[0] == "2 scenarios: 2 not finished."
    suite = ElementTree.parse(report).getroot()[0]
    assert [case.get("classname") for case in suite if case.get("name") == "finished"] == [
        "exam.live-migration",
        "exam.user-restart",
    ]


def test_timeout_on_an_idle_machine_is_not_blamed_on_the_machine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exam, "LIMIT", 0.001)
    monkeypatch.setattr(scenario_run, "STALLED_SHARE", 1.0)
    ended = run(machine, "exam", *ONE, *TOLD_URL, *handler("none"))
    assert ended.code == 6
    late = "? user-restart: the scenario did not end within 0.005 s, although the machine was not busy"
    assert ended.stdout.splitlines() == ["1 scenario: 1 not finished.", late]
    assert "too slow" not in ended.stderr


@pytest.mark.process
def test_kind_of_event_that_is_never_approved_is_one_finding(machine: Machine) -> None:
    two = ("--only", "another-host-name", "--only", "wrong-content-type")
    ended = run(machine, "exam", *two, *IN_VAIN, *TOLD_URL, *handler("approves nothing"))
    assert ended.code == 1
    lines = ended.stdout.splitlines()
    assert lines[:2] == [
        "2 scenarios: 2 failed.",
        "✗ approves-E1: in 2 scenarios it approved no Reboot of source Platform",
    ]
    # On a busy machine another line says that the exam tried twice.
    assert lines[4:6] == [
        "    advice:    if that is intended: --expect Reboot/Platform=ignore",
        "    in:        another-host-name, wrong-content-type",
    ]
    expected = ("--only", "another-host-name", "--expect", "Reboot/Platform=ignore")
    assert run(machine, "exam", *expected, *IN_VAIN, *TOLD_URL, *handler("approves nothing")).code == 0


@pytest.mark.process
def test_handler_that_asks_with_an_old_version_fails(machine: Machine) -> None:
    one = ("--only", "eviction-30s", *IN_VAIN)
    ended = run(machine, "exam", *one, *TOLD_URL, *handler("asks with an old version"))
    assert ended.code == 1
    assert (
        "    seen:      it asks with 2017-08-01, in which Preempt events are not shown; use 2017-11-01 or newer"
        in ended.stdout.splitlines()
    )


INCIDENT = """\
# Last month's incident.
platform automatic
scope web availability-set
vm db-7 domain 0
handler db-7

wait 3h
schedule Redeploy db-7 in 20m
approve E1 by db-7
expect E1 Completed within 30m
"""


@pytest.mark.process
def test_own_scenario_is_examined(machine: Machine) -> None:
    file = machine.home / "incident.txt"
    file.write_text(INCIDENT)
    own = ("--scenario", str(file), *TOLD_URL)
    ended = run(machine, "exam", *own, *handler("approves at the last moment"))
    assert (ended.code, ended.stdout) == (0, "1 scenario: 1 passed.\n"), ended.stderr
    ended = run(machine, "exam", *own, *IN_VAIN, *handler("approves nothing"))
    assert (ended.code, ended.stdout.splitlines()[1]) == (
        1,
        "✗ approves-E1: in incident it approved no Redeploy of source Platform",
    )


@pytest.mark.process
def test_markers_are_relative_to_the_working_directory(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.home)
    command = handler("marks its working directory")
    markers = ("--prepared", "prepared-here", "--recovered", "recovered-here")
    ended = run(machine, "exam", *ONE, *TOLD_URL, *markers, "-o", "json", *command)
    assert ended.code == 0, ended.stdout
    assert json.loads(ended.stdout)["not_judged"] == 0
    assert (machine.home / "prepared-here").exists()


ONE_SHOT = f"""
import importlib.util, json, os, pathlib, sys
spec = importlib.util.spec_from_file_location("sample", {str(HANDLER)!r})
sample = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sample)
file = pathlib.Path(os.environ["FOREWARN_EXAM_DIR"]) / "approved"
handler = sample.Handler("none")
handler.approved = set(file.read_text().split()) if file.exists() else set()
handler.look()
file.write_text(" ".join(handler.approved))
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.process
@pytest.mark.parametrize(("code", "broken"), [(0, set()), (3, {"keeps-running"})])
def test_one_shot_handler_is_started_again_and_again(machine: Machine, code: int, broken: set[str]) -> None:
    command = ("--", sys.executable, "-c", ONE_SHOT, str(code))
    ended = run(machine, "exam", *ONE, *TOLD_URL, "--one-shot", "0.5", "-o", "json", *command)
    (scenario,) = json.loads(ended.stdout)["scenarios"]
    found = {finding["demand"]: finding for finding in scenario["findings"]}
    assert {key for key, finding in found.items() if finding["verdict"] == "broken"} == broken, ended.stdout
    assert re.fullmatch(
        r"it ran \d+ times, each time with exit code 0" if code == 0 else r"it ended with exit code 3 .*",
        found["keeps-running"]["seen"],
    )


@pytest.mark.process
def test_json_and_junit_have_all_findings(machine: Machine, tmp_path: Path) -> None:
    """Only one of two markers is given: checks of the other are not judged and do not count as kept."""
    report = tmp_path / "exam.xml"
    options = (*ONE, *TOLD_URL, "--prepared", "{dir}/prepared", "--junit", str(report), "-o", "json")
    ended = run(machine, "exam", *options, *handler("none"))
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    (scenario,) = found.pop("scenarios")
    assert found == {"passed": True, "kept": 10, "warning": 0, "broken": 0, "not_judged": 1}
    sheet = next(sheet for sheet in exam_scenarios() if sheet.name == "user-restart")
    demands = [demand.key for demand in sheet.checks]
    findings = scenario.pop("findings")
    assert [finding["demand"] for finding in findings] == demands
    assert findings[-1] == {
        "demand": "recovers-E1",
        "mood": "must",
        "expected": "must recover after E1 has ended",
        "verdict": "not judged",
        "seen": "no marker file: use --recovered FILE",
        "is_exercised": False,
        "event_kind": None,
        "advice": "",
        "is_conclusive": False,
        "is_uncertain": False,
    }
    assert scenario.pop("seconds") > 0
    assert scenario.pop("stalled") >= 0
    assert list(scenario.pop("labels")) == ["E1"]
    assert scenario == {
        "passed": True,
        "scenario": "user-restart",
        "title": sheet.scenario().title,
        "is_finished": True,
        "exit_code": None,
        "problem": None,
        "output": "",
        "tries": 1,
        "essential": ["approves-E1"],
        "is_exercised": True,
    }
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("11", "0", "1")
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        ("exam.user-restart", demand) for demand in demands
    ]


@pytest.mark.process
def test_uploaded_report_has_the_findings_of_the_text(machine: Machine, forewarn: Forewarn) -> None:
    command = handler("crashes on an empty body")
    ended = run(machine, "exam", "--only", "empty-body", "--upload", *TOLD_URL, *command, **forewarn.environment)
    (listed,) = forewarn.api.reports().reports
    report = forewarn.api.report(listed.id)
    (problem,) = report.problems
    text = ended.stdout
    assert (ended.code, report.passed, report.summary in text) == (1, False, True)
    assert all(each in text for each in ("keeps-running", problem.expected, problem.seen, problem.location))
    assert (problem.title, problem.places) == ("keeps-running", ["empty-body"])
    assert {finding.name for finding in report.findings if finding.mark == "failed"} == {"keeps-running"}


@pytest.mark.process
def test_handler_may_ignore_a_type_with_expect(machine: Machine) -> None:
    only = ("--only", "live-migration")
    ended = run(machine, "exam", *only, *TOLD_URL, "--expect", "Freeze=ignore", "--all", *handler("none"))
    assert ended.code == 1
    line = (
        "live-migration  approves-E1       broken      must not approve E1 while it is Scheduled. Seen: it approved E1"
    )
    assert line in ended.stdout
    assert "    expected:  it must not approve E1 while it is Scheduled" in ended.stdout.splitlines()


@pytest.mark.process
def test_vm_name_and_url_placeholder(machine: Machine) -> None:
    command = ("--", "env", "EXAM_URL={url}", sys.executable, str(HANDLER), "none")
    assert run(machine, "exam", "--only", "event-for-another-vm", "--vm", "web-1", *command).code == 0


@pytest.mark.process
def test_program_runs_as_a_vm_without_root(machine: Machine) -> None:
    if (why := sandbox.unavailable_reason()) is not None:
        pytest.skip(why)
    ended = run(machine, "exam", *ONE, *handler("none"))
    assert ended.code == 0, ended.stdout + ended.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "broken"),
    [
        ("exit 3", {"asks", "keeps-running"}),
        ("sleep 60", {"asks"}),
        ("while :; do echo all is well; done", {"asks"}),
    ],
    ids=["crashes", "never polls", "only prints"],
)
def test_program_that_is_not_a_handler_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, script: str, broken: set[str]
) -> None:
    if script != "exit 3":  # the exam need not wait for a program that has ended
        monkeypatch.setattr(candidate, "FIRST_POLL_TIMEOUT", 1.0 / SLOW)
    ended = run(machine, "exam", *ONE, *TOLD_URL, "-o", "json", "--", "sh", "-c", script)
    assert ended.code == 1
    (scenario,) = json.loads(ended.stdout)["scenarios"]
    assert {finding["demand"] for finding in scenario["findings"] if finding["verdict"] == "broken"} == broken
    assert scenario["exit_code"] == (3 if script == "exit 3" else None)
    assert len(scenario["output"]) <= 2 * 64 * 1024


def test_explain_lists_the_checks_without_running_anything(machine: Machine) -> None:
    table = run_table(machine, "exam", "--explain")
    checks = [row[0] for row in table]
    assert [checks.count(key) for key in ("asks", "approves-E…", "user-restart")] == [1, 2, 1]
    explained = run_json(machine, "exam", "--explain")
    assert [sheet["scenario"] for sheet in explained] == [sheet.name for sheet in exam_scenarios()]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "specify COMMAND"),
        (("--only", "doomsday", "--", "true"), 4, "the exam has no scenario doomsday"),
        (("--", "./there-is-none"), 2, "program ./there-is-none not found or not executable"),
        (("--expect", "Freeze=dance", "--", "true"), 2, "use approve, ignore or either"),
        (("--expect", "Melt=ignore", "--", "true"), 2, "Freeze, Reboot"),
        (("--scenario", "none.txt", "--", "true"), 2, "--scenario: cannot read none.txt"),
        (("--scenario", "/dev/null", "--", "true"), 2, "--scenario /dev/null: line 1"),
        (("--scenario", "/dev/null", *ONE, "--", "true"), 2, "omit --only and --skip"),
        (("--one-shot", "0", "--", "true"), 2, "--one-shot"),
    ],
    ids=[
        "no program",
        "unknown scenario",
        "missing program",
        "unknown expectation",
        "unknown type",
        "missing scenario",
        "empty scenario",
        "own and shipped scenarios",
        "no interval",
    ],
)
def test_wrong_usage_is_reported_before_anything_runs(
    machine: Machine, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = run(machine, "exam", *arguments)
    assert (ended.code, said in ended.stderr) == (code, True), ended.stderr


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted_exam_leaves_no_processes_behind(machine: Machine, tmp_path: Path, number: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}.draft; mv {pid_file}.draft {pid_file}; exec sleep 600"
    with begun(machine, "exam", *ONE, *TOLD_URL, "--", "sh", "-c", script) as process:
        until(pid_file.exists, process)
        process.send_signal(number)
        assert process.wait(GUARD) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@contextmanager
def begun(machine: Machine, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command, and end it with its children in any case."""
    # A background process of a shell ignores Ctrl-C, and so would its children.
    command = ["env", "--default-signal=INT", str(PROGRAM), *arguments]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=machine.home, env=machine.environment, stdout=silent, stderr=silent) as process:
        try:
            yield process
        finally:
            process.kill()


def until(is_so: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait for something that a process does; fail if the process ends first."""
    end = time.monotonic() + GUARD
    while not is_so():
        assert process.poll() is None, f"the process exited with {process.returncode}"
        assert time.monotonic() < end
        time.sleep(0.02)
