"""Completion scripts for bash, zsh and fish: show one, or install it where the shell finds it."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from forewarn.cli.errors import CliError, ExitCode

PROGRAM = "forewarn"
COMPLETE_VARIABLE = "_FOREWARN_COMPLETE"
PROC = Path("/proc")

SCRIPT_FILES = {
    "bash": ".bash_completions/forewarn.sh",
    "zsh": ".zfunc/_forewarn",
    "fish": ".config/fish/completions/forewarn.fish",
}
SHELLS = ", ".join(SCRIPT_FILES)
STARTUP_LINES = {
    "bash": (".bashrc", "source '{file}'"),
    "zsh": (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
}
"""The start-up file of each shell and the line in it that loads the script; fish needs none."""


def find_shell() -> str:
    """Return the shell from which the program was started, else the user's login shell."""
    candidates = [*_ancestor_names(), Path(os.environ.get("SHELL", "")).name]
    shell = next((name for name in candidates if name in SCRIPT_FILES), None)
    if shell is None:
        raise CliError(ExitCode.USAGE, f"SHELL: cannot detect the shell; specify one of {SHELLS}")
    return shell


def _ancestor_names() -> list[str]:
    """Return the names of the parent processes, nearest first; none if the system is not Linux."""
    names = []
    pid = os.getppid()
    while pid > 1:
        try:
            name, _, rest = (PROC / str(pid) / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            break
        names.append(name)
        pid = int(rest.split()[1])
    return names


def completion_script(app: click.Command, shell: str) -> str:
    """Return the completion script for a shell."""
    script_class = get_completion_class(shell) if shell in SCRIPT_FILES else None
    if script_class is None:
        raise CliError(ExitCode.USAGE, f"SHELL: no completion for {shell}; specify one of {SHELLS}")
    return script_class(app, {}, PROGRAM, COMPLETE_VARIABLE).source()


def install_completion(app: click.Command, shell: str) -> Path:
    """Write the script to the user's home directory, and return its path."""
    script = completion_script(app, shell)
    file = Path.home() / SCRIPT_FILES[shell]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script)  # follows a symbolic link, unlike `write_file`
        if shell in STARTUP_LINES:
            startup_file, line = STARTUP_LINES[shell]
            _add_line(Path.home() / startup_file, line.format(file=file))
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"cannot write {error.filename or file}: {error.strerror}") from error
    return file


def _add_line(file: Path, line: str) -> None:
    """Append a line to a file unless the file has it."""
    if not file.exists() or line not in file.read_text().splitlines():
        with file.open("a") as startup:
            startup.write(f"\n{line}\n")
