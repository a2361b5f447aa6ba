"""Simulation of a fleet of several cells, one after the other, and its report."""

from collections.abc import Callable
from time import perf_counter

import msgspec

from forewarn.core.errors import Invalid
from forewarn.testing.simulation.cell import CellSimulation
from forewarn.testing.simulation.layout import FleetLayout
from forewarn.testing.simulation.load import ControlLoad, HostLoad, combine_hosts

MAX_VMS, MAX_CELLS, MAX_HOURS = 10_000_000, 1_000, 24 * 31


class ComputationTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on this machine. They differ from run to run, everything else depends on the seed only."""

    whole: float
    rules: float
    documents: float


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened, and what the busiest machines carry."""

    vms: int
    cells: int
    hours: float
    seed: int
    hosts: int
    scopes: int
    polls: int
    counts: dict[str, int]
    saves: int
    journal_lines: int
    busiest_host: HostLoad
    busiest_control: ControlLoad
    measured: ComputationTimes


def simulate(
    *, vms: int, cells: int, hours: float, seed: int, on_progress: Callable[[float, float], None]
) -> SimulationReport:
    """Simulate the cells; report the hours that have passed in all of them, and how many there are."""
    for value, most, name in ((vms, MAX_VMS, "vms"), (cells, MAX_CELLS, "cells"), (hours, MAX_HOURS, "hours")):
        if not 0 < value <= most:
            raise Invalid(f"{name} must be more than 0 and at most {most:,}, got {value:,}")
    if cells > vms:
        raise Invalid(f"{cells} cells need at least as many VMs, got {vms}")
    began = perf_counter()
    host_loads: list[HostLoad] = []
    control_loads: list[ControlLoad] = []
    counts: dict[str, int] = {}
    hosts = scopes = 0
    polls = rules = documents = 0.0
    for cell in range(cells):
        size = vms // cells + (cell < vms % cells)
        layout = FleetLayout(vms=size, cell=cell, seed=seed)
        hosts, scopes = hosts + layout.hosts, scopes + layout.scopes
        passed = cell * hours
        simulation = CellSimulation(vms=size, cell=cell, hours=hours, seed=seed)
        result = simulation.run(lambda hour: on_progress(passed + hour, cells * hours))  # noqa: B023 - called here
        host_loads.append(result.counters.host_load())
        control_loads.append(result.counters.control_load(cell))
        polls += result.polls
        rules += result.rule_seconds
        documents += result.document_seconds
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    return SimulationReport(
        vms=vms,
        cells=cells,
        hours=hours,
        seed=seed,
        hosts=hosts,
        scopes=scopes,
        polls=round(polls),
        counts=counts,
        saves=sum(load.saves for load in control_loads),
        journal_lines=sum(load.journal_lines for load in control_loads),
        busiest_host=combine_hosts(host_loads),
        busiest_control=max(control_loads, key=lambda load: (load.saves_per_second, load.saves)),
        measured=ComputationTimes(
            whole=round(perf_counter() - began, 3), rules=round(rules, 3), documents=round(documents, 3)
        ),
    )
