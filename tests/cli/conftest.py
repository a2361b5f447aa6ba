"""Fixtures of the command-line tests."""

from pathlib import Path

import pytest

from tests.support.program import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
