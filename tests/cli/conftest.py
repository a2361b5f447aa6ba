"""What the tests of the program share."""

from pathlib import Path

import pytest

from tests.cli.stage import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
