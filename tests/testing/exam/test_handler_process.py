"""Tests of the handler's process: how it is launched, its output, its end, and stopping it."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from forewarn.testing.exam.handler_process import HandlerProcess, LaunchContext, LaunchFailed, LaunchOptions

GUARD = 60.0


def launch(
    directory: Path, script: str, *arguments: str, url_variable: str | None = None
) -> tuple[HandlerProcess, threading.Event]:
    """Start a Python program; the event is set when it has ended by itself."""
    ended = threading.Event()
    options = LaunchOptions(command=(sys.executable, "-c", script, *arguments), url_variable=url_variable)
    context = LaunchContext(url="http://127.0.0.1:9", host_name="web-0", directory=directory, environment={"WORD": "ä"})
    return HandlerProcess(options, context, on_end=ended.set), ended


@pytest.mark.parametrize(
    ("command", "url_variable", "expected"),
    [
        (("handler",), None, False),
        (("handler", "{dir}"), None, False),
        (("handler", "--url={url}"), None, True),
        (("handler",), "ENDPOINT", True),
    ],
)
def test_program_gets_a_url_in_its_command_or_in_a_variable(
    command: tuple[str, ...], url_variable: str | None, expected: bool
) -> None:
    assert LaunchOptions(command=command, url_variable=url_variable).receives_url == expected


@pytest.mark.process
def test_program_gets_url_directory_and_environment(tmp_path: Path) -> None:
    script = "import os, sys; print(sys.argv[1:], *map(os.environ.get, ('URL', 'FOREWARN_EXAM_DIR', 'WORD')))"
    process, ended = launch(tmp_path, script, "--url={url}/x", "{dir}/{dir}", url_variable="URL")
    assert ended.wait(GUARD)
    process.stop()
    arguments = ["--url=http://127.0.0.1:9/x", f"{tmp_path}/{tmp_path}"]
    assert process.output == f"{arguments} http://127.0.0.1:9 {tmp_path} ä\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "code"),
    [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL)],
)
def test_exit_code_is_that_of_a_shell(tmp_path: Path, script: str, code: int) -> None:
    process, ended = launch(tmp_path, script)
    assert ended.wait(GUARD)
    process.stop()
    assert process.exit_status is not None
    assert (process.exit_status.code, process.exit_status.at >= process.began_at) == (code, True)


@pytest.mark.process
def test_output_has_both_streams_and_stays_after_the_stop(tmp_path: Path) -> None:
    script = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    process, ended = launch(tmp_path, script)
    assert ended.wait(GUARD)
    before = process.output
    process.stop()
    process.stop()
    assert (before, process.output) == ("out\nerr\n", "out\nerr\n")


@pytest.mark.process
def test_stopped_program_has_not_ended_by_itself(tmp_path: Path) -> None:
    process, ended = launch(tmp_path, "import signal; signal.pause()")
    process.stop()
    assert (process.exit_status, ended.is_set()) == (None, False)


@pytest.mark.process
def test_stop_ends_the_children_too(tmp_path: Path) -> None:
    """The pipe reaches its end only when both processes have ended."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    script = (
        "import os, signal, sys; pipe = os.open(sys.argv[1], os.O_WRONLY); os.fork(); "
        "os.write(pipe, b'x'); signal.pause()"
    )
    process, _ = launch(tmp_path, script, str(path))
    with path.open("rb") as pipe:
        assert pipe.read(2) == b"xx"
        process.stop()
        assert pipe.read() == b""


@pytest.mark.process
def test_missing_program_cannot_be_launched(tmp_path: Path) -> None:
    options = LaunchOptions(command=(str(tmp_path / "missing"),))
    context = LaunchContext(url="", host_name="web-0", directory=tmp_path, environment={})
    with pytest.raises(LaunchFailed) as caught:
        HandlerProcess(options, context, on_end=lambda: None)
    assert str(caught.value) == f"cannot run {tmp_path}/missing: No such file or directory"
