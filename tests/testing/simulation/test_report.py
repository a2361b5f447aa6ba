"""The simulation of several cells: the report adds them up, and names what the busiest machines carry."""

import pytest
from msgspec.structs import replace

from forewarn.core.errors import Invalid
from forewarn.testing.simulation.report import MAX_VMS, SimulationReport, simulate


def run(vms: int = 1_501, cells: int = 3, hours: float = 3, seed: int = 5) -> SimulationReport:
    return simulate(vms=vms, cells=cells, hours=hours, seed=seed, on_progress=lambda _done, _total: None)


def test_report_adds_the_cells_up_and_can_be_repeated() -> None:
    report = run()
    assert (report.vms, report.cells, report.hosts) == (1_501, 3, 31)
    assert report.busiest_host.vms >= 46
    assert report.saves >= report.busiest_control.saves > 0
    assert report.journal_lines >= report.busiest_control.journal_lines
    assert 0 < report.busiest_host.polls_per_second <= 50
    assert report.polls > 1_000 * 3 * 3_600 / 5
    assert replace(run(), measured=report.measured) == report
    assert replace(run(seed=6), measured=report.measured) != report


def test_progress_covers_all_cells() -> None:
    seen: list[tuple[float, float]] = []

    def note(done: float, total: float) -> None:
        seen.append((done, total))

    simulate(vms=200, cells=2, hours=2, seed=1, on_progress=note)
    assert seen == sorted(seen)
    assert seen[-1:] == [(4, 4)]


@pytest.mark.parametrize(("vms", "cells", "hours"), [(0, 1, 1), (MAX_VMS + 1, 1, 1), (1, 2, 1), (1, 1, 0), (1, 0, 1)])
def test_impossible_fleets_are_refused(vms: int, cells: int, hours: float) -> None:
    with pytest.raises(Invalid):
        run(vms, cells, hours)
