"""`make run-cluster`: what it prints, what it does after a kill, and that nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.program import GUARD

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


NOTES = {"holder": "holds the lease", "leader": "leads the stream"}


def read_pid(directory: Path, name: str) -> int:
    """Return the process id that a command of the text uses."""
    (file,) = directory.glob(f"*/{name}.pid")
    return int(file.read_text() or 0)


def test_demonstration_survives_a_kill_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demonstration = subprocess.Popen(
        [sys.executable, "-m", "tools.run_cluster"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demonstration.stdout is not None
    with demonstration.stdout as lines:
        try:
            pids: dict[str, int] = {}
            special: dict[str, int] = {}
            for line in lines:
                if row := re.fullmatch(r"  (\S+) +(\d+) +\S+://\S+ +(.*)\n", line):
                    pids[row[1]] = int(row[2])
                    special |= {name: int(row[2]) for name, note in NOTES.items() if note in row[3]}
                if "kill -STOP" in line:
                    break
            assert sorted(pids) == ["control-0", "control-1", "hv-0", "hv-1", "hv-2", "n0", "n1", "n2"]
            assert {name: read_pid(tmp_path, name) for name in (*pids, *special)} == pids | special
            os.kill(special["holder"], signal.SIGKILL)
            assert any("this process holds the lease clock, term 2" in line for line in lines)
            (successor,) = {pids["control-0"], pids["control-1"]} - {special["holder"]}
            wait_until(lambda: read_pid(tmp_path, "holder") == successor, "the file names the new holder")
        finally:
            demonstration.send_signal(signal.SIGINT)
            rest = lines.read()
            assert demonstration.wait(GUARD) == 0
    assert "Everything has ended." in rest
    assert [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []
