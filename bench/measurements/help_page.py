"""Time of `forewarn --help`, compared with a Python that imports click and rich."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import rounded
from bench.result import BenchmarkResult
from bench.workspace import Workspace

TARGET_RATIO = 1.5
HELP = (str(Path(sys.executable).parent / "forewarn"), "--help")
IMPORTS = (sys.executable, "-c", "import click, rich")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of runs of each."""

    rounds: int = 30


FULL = Size()
QUICK = Size(rounds=3)


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Run both alternately, so that noise affects both."""
    pages: list[float] = []
    imports: list[float] = []
    for _ in range(size.rounds):
        pages.append(_seconds(HELP))
        imports.append(_seconds(IMPORTS))
    ratio = median(pages) / median(imports)
    workspace.log(f"    {ratio:.2f} times as long")
    return BenchmarkResult(
        what="`forewarn --help` against `python -c 'import click, rich'`",
        measured=f"{median(pages) * 1000:.0f} ms against {median(imports) * 1000:.0f} ms: {ratio:.2f} ×",
        target=f"≤ {TARGET_RATIO} ×",
        met=ratio <= TARGET_RATIO,
        figures={"seconds": rounded(pages, 4), "import_seconds": rounded(imports, 4), "ratio": round(ratio, 3)},
        note=f"medians of {size.rounds} processes each, in turns, from their start to their end",
    )


def _seconds(command: tuple[str, ...]) -> float:
    began_at = time.monotonic()
    # Without a time limit, because a wait with one polls at growing intervals: all times would be 32 or 64 ms.
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began_at
