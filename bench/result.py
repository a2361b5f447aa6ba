"""Benchmark results: the printed table and the JSON file."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.machine import Machine

Figure = float | int | str | list[float]


class BenchmarkResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table, its figures, and the conditions of the measurement."""

    what: str
    measured: str
    target: str
    met: bool
    figures: dict[str, Figure] = {}
    note: str


class _ResultsFile(msgspec.Struct, kw_only=True):
    quick: bool
    machine: Machine
    findings: Mapping[str, BenchmarkResult]
    broken: Mapping[str, str]


def print_table(findings: Mapping[str, BenchmarkResult], broken: Mapping[str, str], machine: Machine) -> None:
    """Print a row per finding, and the conditions below the table."""
    console = Console(width=None if Console().is_terminal else 160)
    table = Table(title=str(machine), title_justify="left", caption_justify="left", show_lines=True)
    for heading in ("what", "measured", "target", "met"):
        table.add_column(heading, overflow="fold")
    for name, finding in findings.items():
        table.add_row(f"{finding.what} [dim]({name})[/dim]", finding.measured, finding.target, _yes_or_no(finding.met))
    for name, why in broken.items():
        table.add_row(name, f"not measured: {why}", "", "no")
    console.print(table)
    for name, finding in findings.items():
        console.print(f"{name}: {finding.note}", highlight=False, markup=False)


def write_json(
    path: Path, findings: Mapping[str, BenchmarkResult], broken: Mapping[str, str], machine: Machine, *, quick: bool
) -> None:
    """Write all findings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = _ResultsFile(quick=quick, machine=machine, findings=findings, broken=broken)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")


def _yes_or_no(met: bool) -> str:
    return "[green]yes[/green]" if met else "[bold red]no[/bold red]"
