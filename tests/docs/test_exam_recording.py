"""The terminal in the README's picture shows the real output of `forewarn exam` for the README's handler."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import PATIENCE, normal, programs

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "docs/pictures/exam.txt"
EXECUTABLE = Path(sys.executable).parent / "forewarn"


def test_recording_matches_the_output_of_the_exam(tmp_path: Path, rewrite: bool) -> None:
    """With --rewrite it is recorded again; then run `make pictures`. Scenarios end in any order."""
    first, _, shown = RECORDING.read_text().partition("\n")
    (tmp_path / "handler.py").write_text(programs(ROOT / "README.md")["handler.py"])
    program, *arguments = shlex.split(first.removeprefix("$ "))
    ended = subprocess.run(
        [EXECUTABLE, *arguments],
        cwd=tmp_path,
        env=os.environ if rewrite else os.environ | PATIENCE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    if rewrite:
        RECORDING.write_text(f"{first}\n{ended.stdout}")
        return
    assert (program, ended.returncode) == ("forewarn", 1)
    assert sorted(normal(ended.stdout).splitlines()) == sorted(normal(shown).splitlines())
