"""The suite comes out the same, however it was begun."""

import signal
import subprocess

from tests.conftest import pytest_configure


def test_program_can_be_interrupted_though_the_suite_was_begun_in_the_background() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pytest_configure()
        with subprocess.Popen(["sleep", "600"]) as program:
            program.send_signal(signal.SIGINT)
            assert program.wait(30) == -signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_runs_the_suite_can_still_interrupt_it() -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
