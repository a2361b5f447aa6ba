"""The test suite behaves the same in foreground, in background and in fast runs."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import let_programs_be_interrupted
from tests.support.inner_pytest import WITHOUT_OTHERS


@pytest.mark.process
def test_programs_get_sigint_when_the_suite_runs_in_the_background() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        let_programs_be_interrupted()
        with subprocess.Popen(["sleep", "600"]) as program:
            program.send_signal(signal.SIGINT)
            assert program.wait(30) == -signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_suite_can_be_interrupted() -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


PLANTED = """
import multiprocessing, os, subprocess
import pytest

def test_free():
    pass

def test_popen():
    subprocess.run(["true"])

def test_spawn():
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)

def test_multiprocessing():
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()

@pytest.fixture
def program():
    subprocess.run(["true"])

def test_fixture(program):
    pass

def test_swallowed():
    try:
        subprocess.run(["no-such-program"])
    except OSError:
        pass

@pytest.mark.process
def test_marked():
    subprocess.run(["true"])
"""


@pytest.mark.process
def test_fast_run_fails_unmarked_tests_that_start_a_process(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    options = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--fast", "-q", "-rA")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *WITHOUT_OTHERS, *options, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert set(re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)", ended.stdout, re.MULTILINE)) == {
        ("PASSED", "free"),
        ("FAILED", "popen"),
        ("FAILED", "spawn"),
        ("FAILED", "multiprocessing"),
        ("ERROR", "fixture"),
        ("FAILED", "swallowed"),
    }, ended.stdout + ended.stderr
    assert "1 deselected" in ended.stdout
