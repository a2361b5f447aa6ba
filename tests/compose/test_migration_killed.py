"""A migration that is killed at any step is continued by the next one, and copies everything exactly once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nats_servers import run_nats
from tests.support.program import GUARD

ROOT = Path(__file__).parents[2]


@pytest.mark.process
@pytest.mark.parametrize("direction", ["to-cell", "to-directory"])
def test_killed_migration_continues(tmp_path: Path, direction: str) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.compose.killed_migration", direction, tmp_path, cluster.servers[0].url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 10
