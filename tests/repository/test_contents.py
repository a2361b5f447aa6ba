"""Required and forbidden contents of the repository."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import forewarn

# Each is a pattern that does not match its own source.
REGISTRY_HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.org|deb\.debian\.org|index[-_]url")
MACHINE_PATHS = re.compile(r"(?<![\w./:-])/(?:root|work|home/\w+|Users/\w+)/\w")

REQUIREMENT_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
REQUIREMENT = re.compile(REQUIREMENT_NAME.pattern + r"(\[[a-z-]+\])?")
REQUIREMENT_FILES = ("requirements-dev.txt", "requirements-docs.txt")

SERVER_PARTS = ("h11", "httptools", "litestar", "prometheus_client", "uvloop", "pytest", "apprise")


def name_of(requirement: str) -> str:
    """The normalised name at the start of a requirement line."""
    found = REQUIREMENT_NAME.match(requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.process
@pytest.mark.parametrize("forbidden", [REGISTRY_HOSTS, MACHINE_PATHS], ids=["registry-hosts", "machine-paths"])
def test_no_file_contains_a_local_path_or_host(files: tuple[Path, ...], forbidden: re.Pattern[str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if forbidden.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (REGISTRY_HOSTS, "see https://pypi" + ".org/simple"),
        (MACHINE_PATHS, "cd /" + "home/somebody/forewarn"),
        (MACHINE_PATHS, '"/' + 'work/main"'),
    ],
    ids=["registry", "home", "workplace"],
)
def test_local_paths_and_hosts_are_found(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


@pytest.mark.parametrize("name", REQUIREMENT_FILES)
def test_requirements_are_names_only(root: Path, name: str) -> None:
    lines = lines_of(root / name)
    assert [line for line in lines if not REQUIREMENT.fullmatch(line)] == []


def test_plain_install_needs_three_packages(project: dict[str, Any]) -> None:
    assert {name_of(line) for line in project["project"]["dependencies"]} == {"click", "msgspec", "rich"}


@pytest.mark.process
def test_guest_side_works_without_any_extra() -> None:
    """Client, agent, API types and command line can be imported without the packages of the extras."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))\n"
        "import forewarn.agent, forewarn.api, forewarn.cli, forewarn.client"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


NOT_POSIX = """
import importlib, os, pkgutil, signal, sys, sysconfig, types
# What the standard library and the dependencies load according to the system they run on.
import asyncio, click, ctypes, http.server, rich.console, rich.table, ssl, subprocess, tempfile, urllib.request
sysconfig.get_config_vars()
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", *{server!r}):
    sys.modules[name] = None
for name in ("fork", "geteuid", "getgid", "getpgid", "getuid", "killpg", "setsid"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGXFSZ"):
    delattr(signal, name)
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.platform = "win32"
for package in map(importlib.import_module, ("forewarn.agent", "forewarn.api", "forewarn.client", "forewarn.cli")):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith({not_there!r}):
            importlib.import_module(module.name)
print("imported")
"""
NOT_THERE = ("__main__", "apprise_main", "cluster_main", "migrate_main", "ready_message", "serve_main", "up_main")
"""Main programs, and modules that need an extra."""


@pytest.mark.process
def test_guest_side_needs_no_posix() -> None:
    """The README promises client, agent and command on anything with Python: no import fails as on Windows."""
    program = NOT_POSIX.format(server=SERVER_PARTS, not_there=NOT_THERE)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("imported\n", "")


def test_installed_version_is_the_one_in_the_code() -> None:
    assert forewarn.__version__ == version("forewarn")


def test_types_are_shipped(root: Path) -> None:
    assert (root / "src/forewarn/py.typed").is_file()


def test_changelog_has_a_section_for_the_next_release(root: Path) -> None:
    headings = [line for line in lines_of(root / "CHANGELOG.md") if line.startswith("## ")]
    assert headings[0] == "## [Unreleased]"


def test_files_with_exceptions_from_lint_rules_exist(root: Path, project: dict[str, Any]) -> None:
    patterns = project["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert [name for name in patterns if "{" not in name and not any(root.glob(name))] == []
