"""Completion is shown and installed for bash, zsh and fish, and the scripts work."""

import shutil
import subprocess
from pathlib import Path

import pytest

from forewarn.cli.completion_script import STARTUP_LINES, find_shell
from tests.cli.in_process import run
from tests.support.program import PROGRAM, Machine

SCRIPTS = {
    "bash": ".bash_completions/forewarn.sh",
    "zsh": ".zfunc/_forewarn",
    "fish": ".config/fish/completions/forewarn.fish",
}


@pytest.mark.parametrize("shell", [pytest.param("bash", marks=pytest.mark.process), "zsh", "fish"])
def test_installed_script_equals_the_shown_script(machine: Machine, shell: str) -> None:
    shown = run(machine, "--show-completion", shell)
    installed = run(machine, "--install-completion", shell)
    file = machine.home / SCRIPTS[shell]
    assert (shown.code, shown.stderr, installed.code, installed.stdout) == (0, "", 0, "")
    assert f"_FOREWARN_COMPLETE={shell}_complete" in shown.stdout
    assert file.read_text() == shown.stdout
    assert str(file) in installed.stderr


@pytest.mark.parametrize("shell", [pytest.param("bash", marks=pytest.mark.process), "zsh"])
def test_startup_file_gets_one_additional_line(machine: Machine, shell: str) -> None:
    name, line = STARTUP_LINES[shell]
    file = machine.home / name
    file.write_text("alias f=forewarn")
    for _ in range(2):
        run(machine, "--install-completion", shell)
    expected = line.format(file=machine.home / SCRIPTS[shell])
    assert [each for each in file.read_text().splitlines() if each] == ["alias f=forewarn", expected]


def test_unknown_shell_is_refused(machine: Machine) -> None:
    ended = run(machine, "--install-completion", "tcsh")
    assert (ended.code, ended.stdout) == (2, "")
    assert "tcsh; specify one of bash, zsh, fish" in ended.stderr


def test_unwritable_file_is_reported(machine: Machine) -> None:
    (machine.home / ".zfunc").write_text("")
    ended = run(machine, "--install-completion", "zsh")
    assert (ended.code, str(machine.home / ".zfunc") in ended.stderr) == (1, True)


def test_failed_replacement_is_reported_with_the_name_of_the_script(machine: Machine) -> None:
    file = machine.home / SCRIPTS["zsh"]
    file.mkdir(parents=True)
    ended = run(machine, "--install-completion", "zsh")
    assert (ended.code, f"cannot write {file}: " in ended.stderr) == (1, True)


def test_script_behind_a_symbolic_link_is_replaced(machine: Machine) -> None:
    file, target = machine.home / SCRIPTS["zsh"], machine.home / "dotfiles"
    file.parent.mkdir()
    target.write_text("old")
    file.symlink_to(target)
    assert run(machine, "--install-completion", "zsh").code == 0
    assert (file.is_symlink(), target.read_text()) == (True, run(machine, "--show-completion", "zsh").stdout)


def test_parent_shell_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for pid, name, parent in ((30, "python (3)", 20), (20, "zsh", 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1\n")
    monkeypatch.setattr("forewarn.cli.completion_script.PROC", tmp_path)
    monkeypatch.setattr("os.getppid", lambda: 30)
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert find_shell() == "zsh"
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert find_shell() == "bash"


@pytest.mark.process
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(machine: Machine) -> None:
    script = run(machine, "--show-completion", "bash").stdout
    typed = f"COMP_WORDS=(forewarn vm li) COMP_CWORD=2; _forewarn_completion {PROGRAM}; echo ${{COMPREPLY[@]}}"
    ended = subprocess.run(
        ["bash", "-c", f"{script}\n{typed}"], env=machine.environment, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("list\n", "")
