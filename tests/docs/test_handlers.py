"""Every handler in README, docs, examples and samples passes the exam, at least when its page is done with it."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from forewarn.testing import sandbox
from forewarn.testing.exam import LIMIT, ExamOptions, LaunchOptions, Report, exam_scenarios, examine
from tests.docs.handlers import DocumentedHandler, documented_handlers, edits_of, handlers_in_page
from tests.support.processes import GUARD

pytestmark = pytest.mark.process

SLOW = 5.0
"""How much slower than an idle machine this one may be."""

QUICK = ("event-for-another-vm", "hardware-failure", "proxy-in-the-environment", "two-events-at-once")
"""The scenarios that every run of the tests has; the long test has them all."""

AT_LINK_LOCAL = "FOREWARN_ENDPOINT=http://169.254.169.254"

Save = Callable[[DocumentedHandler, Path], tuple[str, ...]]
"""Saves a handler in a directory, and returns the command that runs it until it is stopped."""


def every_second(command: str, directory: Path | str) -> tuple[str, ...]:
    return ("bash", "-c", f"cd {directory}; while :; do {command}; sleep 1; done")


def need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"the handler needs {', '.join(missing)}; as root, `make test` installs what it can")


def save(handler: DocumentedHandler, directory: Path) -> Path:
    file = directory / handler.file
    file.write_text(handler.text, encoding="utf-8")
    return file


def python_program(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A program that runs until it is stopped."""
    return (sys.executable, str(save(handler, directory)))


def edited_python_program(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """The same, after the reader has corrected it."""
    command = python_program(handler, directory)
    edits = edits_of(handler)
    assert edits, f"{handler.place} is not corrected: use python_program"
    for edit in edits:
        subprocess.run(["bash", "-c", edit], cwd=directory, check=True, timeout=GUARD)
    return command


def restarted_python_program(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A program that ends, and that a service manager starts again."""
    return every_second(f"'{sys.executable}' {save(handler, directory).name}", directory)


def interruptible_fragment(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A part of a program: the test adds the client and the functions that it calls."""
    program = (
        "import time\nfrom forewarn.client import Appeared, Gone, ScheduledEvents\n"
        "def work(): time.sleep(0.1)\n"
        "def clean_up(time_left): pass\n"
        f"with ScheduledEvents() as se:\n{indent(handler.text, '    ')}"
    )
    return restarted_python_program(DocumentedHandler("fragment.py", program), directory)


def python_text(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A program in a string of a test."""
    _, _, rest = handler.text.partition('PROGRAM = """\n')
    program, end, _ = rest.partition('"""')
    assert end, handler.place
    return restarted_python_program(DocumentedHandler("program.py", program), directory)


def python_function(call: str) -> Save:
    """A function that returns after an event."""

    def save_driver(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
        save(handler, directory)
        driver = f"import asyncio, {Path(handler.file).stem} as handler\nwhile True:\n    {call}\n"
        return python_program(DocumentedHandler("driver.py", driver), directory)

    return save_driver


def shell_script(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A script that polls once. It keeps its memory in the current directory: each scenario has its own."""
    need("bash", "curl", "jq")
    return every_second(f"{AT_LINK_LOCAL} bash {save(handler, directory)}", '"$FOREWARN_EXAM_DIR"')


def shell_program(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    """A script that runs until it is stopped."""
    need("bash", "curl", "jq")
    return ("bash", str(save(handler, directory)))


def node_module(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    need("node")
    save(handler, directory)
    (directory / "driver.mjs").write_text("""\
import { approveWhatIsPlanned } from "./handler.mjs";
for (;;) {
  await approveWhatIsPlanned("http://169.254.169.254", "web-0").catch((error) => console.error(error.message));
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
""")
    return ("node", str(directory / "driver.mjs"))


def go_package(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    need("go")
    save(handler, directory)
    (directory / "go.mod").write_text("module example.org/handler\n\ngo 1.21\n")
    (directory / "driver").mkdir()
    (directory / "driver/main.go").write_text("""\
package main

import (
	"fmt"
	"time"

	"example.org/handler"
)

func main() {
	for ; ; time.Sleep(time.Second) {
		if _, err := handler.ApproveWhatIsPlanned("http://169.254.169.254", "web-0"); err != nil {
			fmt.Println(err)
		}
	}
}
""")
    subprocess.run(["go", "build", "-o", "program", "./driver"], cwd=directory, check=True, timeout=GUARD)
    return (str(directory / "program"),)


def mono_program(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    need("mcs", "mono")
    save(handler, directory)
    libraries = ("-r:System.Net.Http.dll", "-r:System.Runtime.Serialization.dll")
    subprocess.run(["mcs", "-out:Handler.exe", *libraries, handler.file], cwd=directory, check=True, timeout=GUARD)
    return ("mono", str(directory / "Handler.exe"))


def powershell_script(handler: DocumentedHandler, directory: Path) -> tuple[str, ...]:
    need("pwsh")
    return ("pwsh", str(save(handler, directory)))


HANDLERS: dict[str, Save] = {
    "README.md:handler.py": edited_python_program,
    "README.md:2": python_program,
    "docs/howto/test-from-other-languages.md:handler.go": go_package,
    "docs/howto/test-from-other-languages.md:handler.mjs": node_module,
    "docs/howto/test-from-other-languages.md:handler.sh": shell_script,
    "docs/howto/test-in-pytest.md:async_example.py": python_function("asyncio.run(handler.handle(None))"),
    "docs/howto/test-in-pytest.md:handler.py": python_function("handler.run(None, [])"),
    "docs/howto/test-in-pytest.md:test_process.py": python_text,
    "docs/reference/client.md:1": python_program,
    "docs/reference/client.md:2": interruptible_fragment,
    "docs/tutorial/first-handler.md:async_handler.py": python_program,
    "docs/tutorial/first-handler.md:handler.py": python_program,
    "docs/tutorial/first-handler.md:worker.py": restarted_python_program,
    "docs/tutorial/test-your-handler.md:handler.py": edited_python_program,
    "samples/Handler.cs": mono_program,
    "samples/handler.ps1": powershell_script,
    "samples/handler.py": python_program,
    "samples/handler.sh": shell_program,
}
"""How to run each handler."""


def examined(command: tuple[str, ...], scenarios: tuple[str, ...]) -> Report:
    if (why := sandbox.unavailable_reason()) is not None:
        pytest.skip(why)
    options = ExamOptions(way=LaunchOptions(command=command), limit=SLOW * LIMIT, pace=SLOW)
    return examine(options, [one for one in exam_scenarios() if not scenarios or one.name in scenarios])


def faults_of(report: Report) -> list[object]:
    return [
        (result.scenario, finding.demand, finding.seen, result.output)
        for result in report.results
        for finding in result.broken
    ] + [(result.scenario, result.problem) for result in report.results if not result.is_passed]


def test_every_handler_is_known() -> None:
    """Add a new handler to HANDLERS, with the function that runs it."""
    assert sorted(handler.place for handler in documented_handlers()) == sorted(HANDLERS)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "se.approve(event)"),
        ("", "forewarn guest watch -o json | while read -r line; do"),
        ("ruby", '{"StartRequests" => []}'),
        ("python", "with se.interruptible() as stop:"),
    ],
)
def test_handler_is_found_in_any_language(language: str, text: str) -> None:
    page = f"Text\n\n1. Item\n\n   ```{language}\n   {text}\n   ```\n"
    assert [handler.place for handler in handlers_in_page("page.md", page)] == ["page.md:1"]


def test_commands_that_a_reader_types_are_no_handler() -> None:
    assert list(handlers_in_page("page.md", "```console\n$ forewarn guest approve --mine\n```\n")) == []


@pytest.fixture(params=HANDLERS)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The command that runs the handler."""
    (handler,) = (one for one in documented_handlers() if one.place == request.param)
    return HANDLERS[handler.place](handler, tmp_path)


def test_handler_passes_the_scenarios_in_which_handlers_fail_most(command: tuple[str, ...]) -> None:
    assert faults_of(examined(command, QUICK)) == []


@pytest.mark.long
def test_handler_passes_the_exam(command: tuple[str, ...]) -> None:
    assert faults_of(examined(command, ())) == []


def test_planted_bug_of_the_readme_is_its_only_one(tmp_path: Path) -> None:
    """As printed, the handler approves events of other VMs."""
    (handler,) = (one for one in documented_handlers() if one.place == "README.md:handler.py")
    report = examined(python_program(handler, tmp_path), QUICK)
    assert report.broken == {("event-for-another-vm", "approves-others")}
