"""`forewarn scenario`: list, show and check. The runs are in test_scenario_runner.

Processes: for an install without the packages of the service.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.testing.scenario import library_names, library_text
from tests.cli.in_process import run, run_json, run_table
from tests.cli.sample_scenarios import WEB
from tests.support.program import GUARD, Machine


def test_shipped_scenarios_are_listed_and_shown(machine: Machine) -> None:
    assert [row[0] for row in run_table(machine, "scenario", "list")] == ["SCENARIO", *library_names()]
    assert {each["name"]: each["handler"] for each in run_json(machine, "scenario", "list")} == {
        name: None if name.startswith("campaign-") else "web-0" for name in library_names()
    }
    assert run(machine, "scenario", "show", "host-update").stdout == library_text("host-update")
    shown = run_json(machine, "scenario", "show", "eviction-8s")
    assert (shown["name"], shown["text"]) == ("eviction-8s", library_text("eviction-8s"))


def test_check_shows_line_word_and_allowed_values(machine: Machine, stories: Path) -> None:
    ended = run(machine, "scenario", "check", "good.txt", "wrong.txt")
    assert ended.code == 1
    assert ended.stdout.splitlines() == [
        (
            "wrong.txt:6:10: 'Rebot': an event type is expected here: Freeze, Reboot, Redeploy, Preempt, Terminate or "
            "SpotRebalanceRecommendation; did you mean Reboot?"
        ),
        "wrong.txt:7:6: a duration is missing: for instance 90s, 15m, 1h30m or 2d",
    ]
    as_json = run(machine, "scenario", "check", "wrong.txt", "-o", "json")
    assert [(each["file"], each["line"], each["column"], each["word"]) for each in json.loads(as_json.stdout)] == [
        ("wrong.txt", 6, 10, "Rebot"),
        ("wrong.txt", 7, 6, ""),
    ]


def test_check_finds_unknown_names(machine: Machine) -> None:
    (machine.home / "names.txt").write_text(f"{WEB}cancel E7\nschedule Reboot web-9 in 15m → E1 Scheduled\n")
    ended = run(machine, "scenario", "check", "names.txt")
    assert ended.code == 1
    assert ended.stdout.splitlines() == [
        "names.txt:6:8: 'E7': no event has this label yet",
        (
            "names.txt:7:17: 'web-9': scope web has no VM web-9 (vm-not-found);"
            " to expect the refusal, write `refused …` after the arrow"
        ),
    ]


def test_check_of_valid_files_writes_a_message(machine: Machine, stories: Path) -> None:
    ended = run(machine, "scenario", "check", "good.txt", "different.txt")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "No errors in 2 files.\n")


WRONG_USES = {
    "no scenario": (("run",), 2, "specify SCENARIO"),
    "scenario and all": (("run", "user-restart", "--all"), 2, "specify SCENARIO"),
    "core with a service": (("run", "user-restart", "--core", "--private"), 2, "--core and --private or --speed are"),
    "speed 0": (("run", "user-restart", "--speed", "0"), 2, "--speed must be greater than 0"),
    "nowhere": (("show", "nowhere"), 4, "there is no scenario or file nowhere"),
    "wrong file": (("run", "wrong.txt"), 2, "wrong.txt:6:10: 'Rebot': an event type is expected here"),
    "two errors": (("run", "wrong.txt"), 2, "(`forewarn scenario check wrong.txt` shows 1 more)"),
    "directory": (("check", "."), 2, "cannot read .: Is a directory"),
}


@pytest.mark.parametrize("case", WRONG_USES)
def test_wrong_usage_is_explained(machine: Machine, stories: Path, case: str) -> None:
    words, code, sentence = WRONG_USES[case]
    ended = run(machine, "scenario", *words)
    assert (ended.code, ended.stdout) == (code, "")
    assert sentence in ended.stderr


@pytest.mark.process
def test_core_option_works_without_the_server_extra(machine: Machine, stories: Path) -> None:
    """A plain install has neither of these."""
    missing = ("h11", "httptools", "jinja2", "litestar", "prometheus_client", "uvloop")
    script = f"import sys\nsys.modules.update(dict.fromkeys({missing}))\nfrom forewarn.cli import main\nmain()"
    plain = [sys.executable, "-c", script, "scenario", "run", "good.txt"]
    on_rules, in_service = (
        subprocess.run(
            [*plain, *more],
            cwd=stories,
            env=machine.environment,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        for more in (["--core"], [])
    )
    assert on_rules.returncode == 0, on_rules.stderr
    assert (in_service.returncode, in_service.stdout) == (2, "")
    assert "install Forewarn with its extra [server]" in in_service.stderr


def test_commands_of_the_guide_work(machine: Machine) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/write-a-scenario.md").read_text()
    shown = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [line.removeprefix("$ ") for language, text in shown if language for line in text.splitlines()]
    (story,) = (text for language, text in shown if not language and text.startswith("#"))
    for command in commands:
        program, _, file = command.partition(" > ")
        ended = run(machine, *program.removeprefix("forewarn ").split())
        assert ended.code == 0, (command, ended)
        if file:
            assert ended.stdout.startswith("# ")
            (machine.home / file).write_text(story)
    assert len(commands) == 5
