"""The scripts in tools/: those of the Makefile, with stand-ins for other programs, and the module tracer."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

NOT_ROOT = "echo 1000"
ROOT = "echo 0"
OLD_PYTHON = "exit 1"
# Answers make-venv's questions as Debian's Python does without the package python3.11-venv.
PYTHON_WITHOUT_ENSUREPIP = """
case "$*" in
    *ensurepip*) exit 1 ;;
    *-venv*) echo python3.11-venv ;;
    *"-m venv"*) echo "made: $3" ;;
    *--version*) echo Python 3.11.2 ;;
esac"""


class Machine:
    """A copy of the scripts, and a PATH on which some programs are stand-ins."""

    def __init__(self, directory: Path, scripts: Path) -> None:
        self.tools = directory / "tools"
        self.programs = directory / "programs"
        self.programs.mkdir()
        shutil.copytree(scripts, self.tools)
        write_script(self.tools / "install-debian", 'echo "install-debian: $*"')
        write_script(self.programs / "apt-get", "exit 1")

    def has(self, program: str, script: str) -> None:
        write_script(self.programs / program, script)

    def run(self, tool: str, *arguments: str, python: str = "python3") -> tuple[int, list[str]]:
        """Return the exit status and the output lines."""
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", "PYTHON": python}
        ended = subprocess.run(
            [self.tools / tool, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout.splitlines()


def write_script(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    return Machine(tmp_path, root / "tools")


def test_missing_python_is_reported(machine: Machine) -> None:
    machine.has("python3-old", OLD_PYTHON)
    assert machine.run("make-venv", "somewhere", python="python3-old") == (
        1,
        [
            "Forewarn needs Python 3.11 or newer. Looked for: python3-old.",
            "Install one, or specify its path: make PYTHON=/path/to/python3.11",
        ],
    )


def test_missing_venv_shows_the_command_to_an_ordinary_user(machine: Machine) -> None:
    machine.has("id", NOT_ROOT)
    machine.has("python3-bare", PYTHON_WITHOUT_ENSUREPIP)
    assert machine.run("make-venv", "somewhere", python="python3-bare") == (
        1,
        [
            "python3-bare cannot create virtual environments without python3.11-venv. Run this, then try again:",
            "    sudo apt-get install python3.11-venv",
        ],
    )


def test_missing_venv_is_installed_by_root(machine: Machine) -> None:
    machine.has("id", ROOT)
    machine.has("python3-bare", PYTHON_WITHOUT_ENSUREPIP)
    assert machine.run("make-venv", "somewhere", python="python3-bare") == (
        0,
        ["install-debian: python3.11-venv", "Creating somewhere with Python 3.11.2", "made: somewhere"],
    )


def test_installed_programs_need_nothing(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "--required", "sh=dash") == (0, [])


def test_missing_programs_are_installed_by_root(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "sh=dash", "no-such-1=one", "no-such-2=two") == (0, ["install-debian: one two"])


def test_program_can_need_more_than_one_package(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "no-such-1=one,two", "no-such-2=three") == (0, ["install-debian: one two three"])


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--required"], 1)], ids=["optional", "required"])
def test_missing_programs_are_reported_to_an_ordinary_user(machine: Machine, options: list[str], status: int) -> None:
    machine.has("id", NOT_ROOT)
    assert machine.run("need", *options, "sh=dash", "no-such-1=one") == (
        status,
        ["Some programs are missing. To install them, run:", "    sudo apt-get install one"],
    )


PIP = """
echo "Collecting click"
echo "  Downloading click-1.0-py3-none-any.whl"
echo "WARNING: something" >&2
echo "Successfully installed rich-1.0 click-1.0"
"""


def test_pip_output_is_reduced_to_warnings(machine: Machine) -> None:
    machine.has("pip", PIP)
    code, lines = machine.run("install-packages", "pip", "install", "click")
    assert (code, sorted(lines)) == (
        0,
        ["Installed 2 packages.", "Installing packages: this can take a minute.", "WARNING: something"],
    )


def test_failure_of_pip_is_passed_on(machine: Machine) -> None:
    machine.has("pip", "echo ERROR: no such package >&2; exit 7")
    code, lines = machine.run("install-packages", "pip", "install", "typo")
    assert (code, "ERROR: no such package" in lines) == (7, True)


def write_package(directory: Path, **modules: str) -> Path:
    directory.mkdir()
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def test_tracer_counts_functions_that_run_in_the_phase_but_no_imports(root: Path, tmp_path: Path) -> None:
    package = write_package(
        tmp_path / "toy",
        called="class Box:\n    def open(self): return [None for _ in range(2)]\n",
        resumed="def count():\n    while True: yield\n",
        called_by_import="def table(): return {}\n",
        imported="from toy import called_by_import\nTABLE = called_by_import.table()\nclass Row:\n    size = 1\n",
        called_before="def prepare(): pass\n",
        in_thread="def work(): pass\n",
        main="class Row:\n    size = 1\n",
    )
    phase = tmp_path / "phase"
    phase.write_bytes(b"\0")
    program = f"""
import pathlib, runpy, threading
from toy import called, called_before, in_thread, resumed
called_before.prepare()
counter = resumed.count()
next(counter)
with pathlib.Path({str(phase)!r}).open("r+b") as file:
    file.write(b"\\7")
import toy.imported
runpy.run_module("toy.main")
next(counter)
thread = threading.Thread(target=in_thread.work)
thread.start()
thread.join()
called.Box().open()
"""
    variables = {"DIRECTORY": str(tmp_path), "PACKAGE": str(package), "PROCESS": "toy-process"}
    environment = {f"TRACE_MODULES_{name}": value for name, value in variables.items()}
    search = os.pathsep.join([str(root / "tools/tracer"), str(tmp_path)])
    subprocess.run([sys.executable, "-c", program], env=os.environ | environment | {"PYTHONPATH": search}, check=True)
    lines = (tmp_path / "toy-process").read_text().splitlines()
    assert [line.split("\t")[1:] for line in lines] == [
        ["7", "resumed.py", "count"],
        ["7", "in_thread.py", "work"],
        ["7", "called.py", "Box.open"],
    ]


def trace_modules(root: Path, *arguments: str, python: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools/trace_modules.py"), "--python", str(python), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_schedule_crosses_modules_of_command_and_service(root: Path) -> None:
    ended = trace_modules(root, "--only", "schedule", "-o", "json", python=Path(sys.executable))
    assert ended.returncode == 0, ended.stderr
    phase = json.loads(ended.stdout)["schedule"]
    crossed = {process: set[str]() for process in phase["processes"]}
    for crossing in phase["crossings"]:
        crossed[crossing["process"]].add(crossing["module"])
    assert {process: len(modules) for process, modules in crossed.items()} == phase["processes"]
    assert len(crossed["command"] | crossed["service"]) == phase["modules"]
    assert min(phase["processes"].values()) >= 5
    for process in ("command", "service"):
        assert all(module.startswith("forewarn.") for module in crossed[process])


def test_phase_that_crosses_nothing_is_an_error(root: Path, tmp_path: Path) -> None:
    write_script(tmp_path / "python", "echo /nowhere/forewarn/__init__.py")
    write_script(tmp_path / "forewarn", "exit 0")
    ended = trace_modules(root, "--only", "exam", python=tmp_path / "python")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "exam: no module of /nowhere/forewarn was crossed" in ended.stderr


def test_failed_command_is_an_error_of_the_tracer(root: Path, tmp_path: Path) -> None:
    write_script(tmp_path / "python", "echo /nowhere/forewarn/__init__.py")
    write_script(tmp_path / "forewarn", "echo no such option >&2; exit 2")
    ended = trace_modules(root, "--only", "exam", python=tmp_path / "python")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("exited with 2: no such option\n")


def test_sizes_count_modules_lines_and_importers(root: Path, tmp_path: Path) -> None:
    package = write_package(
        tmp_path / "forewarn",
        __init__='"""A package."""\n',
        often="x = 1\n" * 59,
        once="x = 1\n" * 60,
        never="from forewarn import often\n\n\ndef later():\n    from forewarn.once import x\n" + "\n" * 95,
        other="import forewarn.often\nfrom forewarn import never as unused\n",
    )
    write_script(tmp_path / "python", f"echo {package}/__init__.py")
    ended = trace_modules(root, "--sizes", "-o", "json", python=tmp_path / "python")
    assert json.loads(ended.stdout) == {
        "modules": 4,
        "under 60 lines": 2,
        "under 100 lines": 3,
        "with one importer": 2,
        "median lines": 59.5,
        "lines": 221,
    }
