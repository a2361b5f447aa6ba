"""Fixtures of the command-line tests."""

from pathlib import Path

import pytest

from tests.cli.sample_scenarios import DIFFERENT, GOOD, WRONG
from tests.support.program import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def stories(machine: Machine) -> Path:
    """The directory of a machine, with scenario files: good, different and wrong."""
    for name, text in {"good": GOOD, "different": DIFFERENT, "wrong": WRONG}.items():
        (machine.home / f"{name}.txt").write_text(text)
    return machine.home
