"""The commands of the README and of every lesson run against a real service, print what the page shows, and leave
nothing behind: no process, and no file outside the directory in which the reader works."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from tests.docs.console import PATIENCE, normal, programs, steps
from tests.support.emulator import plain_environment
from tests.support.inner_pytest import WITHOUT_OTHERS
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/howto/roll-a-kernel-update.md",
    *sorted((ROOT / "docs" / "tutorial").glob("[!R]*.md")),
]
FIRST_PORT = 8180
SWALLOWED = "swallowed.txt"
PROGRAMS = Path(os.environ.get("PROGRAMS_OF_PAGES", Path(sys.executable).parent))
"""The directory of the program `forewarn`: this environment, or, in `make release`, one with the built wheel."""
EXECUTABLE = PROGRAMS / "forewarn"
START = re.compile(r"make run(?: ARGS=(?P<args>.+))?|forewarn up (?P<options>.*)")
"""How a page starts the service: in a clone, or, as lessons do, in a directory where Forewarn is installed."""
TYPES_FOREWARN = re.compile(r"(?<![\w-])forewarn ")
EVENT = re.compile(r"\b[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}\b")


class Reader:
    """A reader who runs the commands of a page; ports and ids differ from those on the page."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self._environ = environ
        self._directory = directory
        self._ports: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def learn_ports(self) -> None:
        """Map the page's ports to the actual ones, in the order of the table."""
        vms = json.loads(self.run("forewarn vm list -o json"))
        for shown, vm in enumerate(vms, start=FIRST_PORT):
            self._ports[f"127.0.0.1:{shown}"] = vm["guest_url"].removeprefix("http://")

    def run(self, command: str, ctrl_c_after: int | None = None) -> str:
        """Run a command of the page, to its end or until it has printed so many lines."""
        for shown, real in (self._ports | self._ids).items():
            command = command.replace(shown, real)
        command = command.replace(" | grep ", f" | tee {SWALLOWED} | grep ")
        command = command.replace(".venv/bin/", "")
        if ctrl_c_after is not None:
            return self.shown(self._run_until_ctrl_c(command, ctrl_c_after))
        talk = subprocess.STDOUT if TYPES_FOREWARN.search(command) else subprocess.PIPE
        done = subprocess.run(
            ["bash", "-c", command],
            env=self._environ,
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}{self._swallowed()}"
        return self.shown(done.stdout)

    def _run_until_ctrl_c(self, command: str, lines: int) -> str:
        process = subprocess.Popen(
            ["bash", "-c", command],
            env={**self._environ, "PYTHONUNBUFFERED": "1"},
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        guard = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
        guard.start()
        try:
            assert process.stdout is not None
            printed = "".join(islice(process.stdout, lines))
            os.killpg(process.pid, signal.SIGINT)
            more, errors = process.communicate()
        finally:
            guard.cancel()
        assert more == "", f"{command}\n{printed}{more}{errors}"
        return printed

    def _swallowed(self) -> str:
        """Return the complete input of the last filter command, most of which the page does not show."""
        file = self._directory / SWALLOWED
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def learn_ids(self, shown: str, seen: str) -> None:
        """Map the page's event ids to the actual ones, which are printed at the same place."""
        self._ids |= zip(EVENT.findall(shown), EVENT.findall(seen), strict=True)

    def shown(self, output: str) -> str:
        """Return the output with the ports and ids of the page."""
        for shown, real in self._ports.items():
            output = re.sub(rf"{re.escape(real)}\b", shown, output)
        return output


@contextmanager
def service(command: str, directory: Path, home: Path) -> Iterator[tuple[Reader, str]]:
    """Start the service as the page does, but on free ports; yield the reader and the startup output.

    The reader works in `directory`; `home` is for everything that a program keeps for a user.
    """
    start = START.fullmatch(command)
    assert start, command
    options = shlex.split(" ".join(shlex.split(start["args"] or "")) or start["options"] or "")
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environ = plain_environment(PATH=path, PYTEST_ADDOPTS=" ".join(WITHOUT_OTHERS), HOME=str(home), **PATIENCE)
    environ |= {"XDG_DATA_HOME": str(home / "data"), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home)}
    ports = ["--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"]
    process = subprocess.Popen(
        [EXECUTABLE, "up", *options, *ports],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        ready = next((line for line in lines if line.startswith("Forewarn serves")), None)
        assert ready is not None, "the service exited before it was ready"
        reader = Reader(environ, directory)
        reader.learn_ports()
        yield reader, "".join(iter(process.stdout.readline, "\n"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@contextmanager
def nothing_left_running(directory: Path) -> Iterator[None]:
    """End background processes that a page started, with the pid in a file, and did not end."""
    try:
        yield
    except BaseException:
        for file in directory.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows_and_leave_nothing(page: Path, tmp_path: Path) -> None:
    """The first command starts the service; every other one prints what the page shows."""
    first, *rest = steps(page)
    assert rest, "the page has no commands"
    directory, home = tmp_path / "lesson", tmp_path / "home"
    directory.mkdir()
    home.mkdir(mode=0o700)
    for name, program in programs(page).items():
        (directory / name).write_text(program, encoding="utf-8")
    with service(first.command, directory, home) as (reader, table), nothing_left_running(directory):
        if first.prints:
            assert normal(reader.shown(table)) == normal(first.prints)
        for step in rest:
            lines = len(step.prints.splitlines()) if step.ends_with_ctrl_c else None
            printed = reader.run(step.command, lines)
            assert normal(printed) == normal(step.prints), step.command
            reader.learn_ids(step.prints, printed)
        assert json.loads(reader.run("forewarn hold -o json")) == []
        assert json.loads(reader.run("forewarn fault list -o json")) == []
        if page.name == "README.md":
            events = json.loads(reader.run("forewarn event list -o json"))
            assert {event["status"] for event in events} <= {"Started"}, "a simulated impact ends by itself"
            assert list(directory.iterdir()) == []
    # The last command of a page may end a program in the background.
    wait_until(lambda: processes_with(f"HOME={home}") == [], "the end of all processes")
    assert [path for path in home.rglob("*") if not path.is_dir()] == []


def processes_with(variable: str) -> list[str]:
    """Return the command lines of the processes with this environment variable."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has exited, or is another user's
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "tutorial"], ids=lambda page: page.stem)
def test_lesson_works_in_a_separate_directory(page: Path) -> None:
    """It starts an installed Forewarn, and links to the chapter that creates the directory."""
    assert steps(page)[0].command.startswith("forewarn up ")
    assert "](README.md#set-up)" in page.read_text(encoding="utf-8")
    assert ".venv" not in page.read_text(encoding="utf-8")
