"""Benchmark runner: runs measurements one after the other; a failed one does not stop the others."""

import traceback
from collections.abc import Sequence

from bench.measurements import MEASUREMENTS
from bench.result import BenchmarkResult
from bench.workspace import Workspace


def run_all(
    names: Sequence[str], workspace: Workspace, *, quick: bool = False
) -> tuple[dict[str, BenchmarkResult], dict[str, str]]:
    """Return the findings and the errors, by the measurement's name."""
    findings: dict[str, BenchmarkResult] = {}
    broken: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        workspace.log(f"[{number}/{len(names)}] {name}")
        measurement = MEASUREMENTS[name]
        try:
            finding = (measurement.quick if quick else measurement.full)(workspace)
        except Exception as error:  # noqa: BLE001 - whatever it is, the table has to say it
            workspace.log(traceback.format_exc())
            broken[name] = f"{type(error).__name__}: {error}"
        else:
            workspace.log(f"    {finding.measured}")
            findings[name] = finding
    return findings, broken
