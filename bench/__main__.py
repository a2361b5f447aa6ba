"""`python -m bench`: measure, print the table, write the JSON."""

import argparse
import compileall
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machine import Machine
from bench.measurements import MEASUREMENTS
from bench.process import ROOT
from bench.result import print_table, write_json
from bench.runner import run_all
from bench.workspace import create_workspace

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all measurements succeeded, even if targets are missed: the table shows those."""
    asked = _parser().parse_args(arguments)
    machine = Machine.detect()
    compile_sources()
    with create_workspace(asked.data, log=_say) as workspace:
        findings, broken = run_all(asked.only or list(MEASUREMENTS), workspace, quick=asked.quick)
    print_table(findings, broken, machine)
    write_json(asked.json, findings, broken, machine, quick=asked.quick)
    _say(f"written to {asked.json}")
    return 1 if broken else 0


def compile_sources() -> None:
    """Compile the measured code to bytecode, as pip does at install time, so that no start includes compilation."""
    for part in ("bench", "src/forewarn"):
        compileall.compile_dir(ROOT / part, quiet=2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="measure this alone (repeatable)")
    parser.add_argument("--quick", action="store_true", help="short runs and small fleets: to see that it works")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="where to write the figures")
    parser.add_argument(
        "--data", type=Path, default=RESULTS, help="where data directories are made: the disk that is measured"
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
