"""A backup or restore that is killed at any step leaves the old files or the new ones, in working order."""

import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.program import GUARD

ROOT = Path(__file__).parents[2]


@pytest.mark.process
@pytest.mark.parametrize("work", ["backup", "restore"])
def test_kill_at_any_step_leaves_the_old_or_the_new_data(tmp_path: Path, work: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.compose.killed_restore", work, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD * 4,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = ended.stdout.split()
    assert [result for result, _ in groupby(found)] == ["old", "new"], "from one step on it is the new data"
    assert found.count("old") > 5
    assert found.count("new") > 1
