"""The simulation of a cell: everything that happens follows from the seed, and what is counted is what happened."""

import pytest

from forewarn.core.scope import Scope
from forewarn.testing.simulation import cell as cell_module
from forewarn.testing.simulation.cell import START, CellResult, CellSimulation
from forewarn.testing.simulation.layout import host_number, scope_name


def run(vms: int = 1_100, hours: float = 12, seed: int = 1) -> tuple[CellSimulation, CellResult]:
    simulation = CellSimulation(vms=vms, cell=0, hours=hours, seed=seed)
    return simulation, simulation.run(lambda _: None)


@pytest.fixture
def eventful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts and VMs fail and be evicted so often that a small cell has everything."""
    monkeypatch.setattr(cell_module, "FAILURES_PER_HOST", 1.0)
    monkeypatch.setattr(cell_module, "FREEZES_PER_HOST", 1.0)
    monkeypatch.setattr(cell_module, "EVICTIONS_PER_VM", 0.2)


@pytest.mark.usefixtures("eventful")
def test_everything_happens_and_follows_from_the_seed() -> None:
    _, first = run()
    _, second = run()
    _, other = run(seed=2)
    assert first.counts == second.counts
    assert first.counts != other.counts
    assert first.counters.control_load(0) == second.counters.control_load(0)
    assert first.counters.host_load() == second.counters.host_load()
    assert first.polls == second.polls
    for name in ("events", "approvals", "impacts", "host_failures", "host_maintenances", "campaigns", "documents"):
        assert first.counts[name] > 0, name
    assert first.counts["waves"] >= 5
    assert first.counters.saves.total > 2 * first.counts["impacts"]


@pytest.mark.usefixtures("eventful")
def test_hosts_have_the_vms_and_polls_that_the_scopes_have_at_the_end() -> None:
    simulation, result = run()
    layout = simulation._layout
    vms, rates = [0] * layout.hosts, [0.0] * layout.hosts
    moved = removed = 0
    for number in range(layout.scopes):
        scope = simulation.find(scope_name(number))
        interval = layout.profile(number).poll_interval
        found = () if scope is None else tuple(scope.roster)
        removed += len(layout.vms_of(number)) - len(found)
        for vm in found:
            host = host_number(vm.host or "")
            moved += host != layout.host_of(layout.vm_number(number, vm.name))
            vms[host] += 1
            rates[host] += 0.0 if interval is None else 1 / interval
    assert (moved > 0, removed > 0) == (True, True)
    assert list(result.counters.vms) == vms
    assert list(result.counters.poll_rates) == pytest.approx(rates)


@pytest.mark.usefixtures("eventful")
def test_campaigns_end_and_no_work_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_module, "FREEZES_PER_HOST", 0.01)
    monkeypatch.setattr(cell_module, "FAILURES_PER_HOST", 0.01)
    monkeypatch.setattr(cell_module, "EVICTIONS_PER_VM", 0.001)
    simulation, result = run(hours=24)
    assert [campaign.record.state.is_over for campaign in simulation._campaigns] == [True]
    assert result.counts["campaigns"] == 1
    overdue = [
        event
        for scope in simulation._open.values()
        for event in scope.events
        if event.started_at is not None and (scope.changed_at - event.started_at).total_seconds() > 3_600
    ]
    assert overdue == []


def test_scope_that_nothing_happened_to_is_as_at_the_beginning() -> None:
    simulation = CellSimulation(vms=110, cell=0, hours=1, seed=1)
    scope = simulation.find(scope_name(3))
    assert isinstance(scope, Scope)
    assert (scope.incarnation, scope.changed_at, scope.events) == (1, START, ())


def test_progress_is_reported_by_the_hour() -> None:
    hours: list[float] = []
    CellSimulation(vms=2_000, cell=0, hours=3, seed=1).run(hours.append)
    assert hours[-1] == 3
    assert hours == sorted(hours)
