"""The scripts behind the Makefile, with stand-ins for the programs of a machine that lacks something."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

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
        """Exit status and the lines said."""
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


def test_lack_of_python_is_said_plainly(machine: Machine) -> None:
    machine.has("python3-old", OLD_PYTHON)
    assert machine.run("make-venv", "somewhere", python="python3-old") == (
        1,
        [
            "Forewarn needs Python 3.11 or newer. Looked for: python3-old.",
            "Install one, or say where it is: make PYTHON=/path/to/python3.11",
        ],
    )


def test_lack_of_venv_gives_an_ordinary_user_the_line_to_type(machine: Machine) -> None:
    machine.has("id", NOT_ROOT)
    machine.has("python3-bare", PYTHON_WITHOUT_ENSUREPIP)
    assert machine.run("make-venv", "somewhere", python="python3-bare") == (
        1,
        [
            "python3-bare cannot make virtual environments without python3.11-venv. Type this, then try again:",
            "    sudo apt-get install python3.11-venv",
        ],
    )


def test_lack_of_venv_is_mended_by_root(machine: Machine) -> None:
    machine.has("id", ROOT)
    machine.has("python3-bare", PYTHON_WITHOUT_ENSUREPIP)
    assert machine.run("make-venv", "somewhere", python="python3-bare") == (
        0,
        ["install-debian: python3.11-venv", "Making somewhere with Python 3.11.2", "made: somewhere"],
    )


def test_programs_that_are_there_need_nothing(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "--required", "sh=dash") == (0, [])


def test_missing_programs_are_installed_by_root(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "sh=dash", "no-such-1=one", "no-such-2=two") == (0, ["install-debian: one two"])


def test_program_can_need_more_than_one_package(machine: Machine) -> None:
    machine.has("id", ROOT)
    assert machine.run("need", "no-such-1=one,two", "no-such-2=three") == (0, ["install-debian: one two three"])


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--required"], 1)], ids=["wished", "required"])
def test_missing_programs_are_named_to_an_ordinary_user(machine: Machine, options: list[str], status: int) -> None:
    machine.has("id", NOT_ROOT)
    assert machine.run("need", *options, "sh=dash", "no-such-1=one") == (
        status,
        ["Some programs are missing. To have them, type:", "    sudo apt-get install one"],
    )


PIP = """
echo "Collecting typer"
echo "  Downloading typer-1.0-py3-none-any.whl"
echo "WARNING: something" >&2
echo "Successfully installed rich-1.0 typer-1.0"
"""


def test_of_pip_little_is_seen_but_what_it_complains_of(machine: Machine) -> None:
    machine.has("pip", PIP)
    code, lines = machine.run("install-packages", "pip", "install", "typer")
    assert (code, sorted(lines)) == (
        0,
        ["Installed 2 packages.", "Installing packages: this can take a minute.", "WARNING: something"],
    )


def test_failure_of_pip_is_ours(machine: Machine) -> None:
    machine.has("pip", "echo ERROR: no such package >&2; exit 7")
    code, lines = machine.run("install-packages", "pip", "install", "typo")
    assert (code, "ERROR: no such package" in lines) == (7, True)
