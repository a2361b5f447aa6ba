"""The load of a simulated cell: peaks and sums are those of what was counted."""

from forewarn.testing.simulation.load import CellCounters, HostCounters, HostLoad, TimeCounter, combine_hosts


def test_seconds_have_peaks_of_any_width() -> None:
    counter = TimeCounter(180)
    for second, count in ((0.9, 1), (59.0, 3), (61.5, 2), (61.9, 2), (180.0, 1)):
        counter.add(second, count)
    assert (counter.peak(), counter.peak(60), counter.total) == (4, 4, 9)


def test_each_host_has_its_own_peak() -> None:
    counters = HostCounters(2)
    for host, second in ((0, 1.0), (0, 1.5), (1, 1.5), (0, 2.0), (1, 2.0), (1, 2.1), (1, 2.9)):
        counters.add(host, second)
    assert (counters.peak, counters.most) == (3, 4)


def test_moved_vm_takes_its_polls_along() -> None:
    counters = CellCounters(hosts=2, seconds=10)
    counters.place(0, 1.0, 40, 1)
    counters.place(0, 0.5, 40, 1)
    counters.change_document(0, 300.0)
    counters.place(0, 1.0, 340, -1)
    counters.place(1, 1.0, 340, 1)
    assert list(counters.vms) == [1, 1]
    assert list(counters.poll_rates) == [0.5, 1.0]
    load = counters.host_load()
    assert (load.vms, load.polls_per_second, load.document_bytes_per_second) == (2, 1.5, 360)


def test_saves_and_commands_are_counted_for_control_and_hosts() -> None:
    counters = CellCounters(hosts=300, seconds=10)
    counters.save(1.0, 100, 2, {0, 1, 2})
    counters.save(1.2, 500, 1, {0})
    counters.save(3.0, 50, 0)
    counters.command(3.0, 0)
    load = counters.control_load(7)
    assert (load.cell, load.saves, load.saves_per_second, load.saves_per_minute) == (7, 3, 2, 3)
    assert (load.journal_lines, load.saved_bytes, load.largest_record) == (3, 650, 500)
    assert (load.updates_per_second, load.commands_per_second, load.heartbeats_per_second) == (4, 1, 105.0)
    hosts = counters.host_load()
    assert (hosts.updates_per_second, hosts.updates, hosts.commands) == (2, 2, 1)


def test_busiest_host_has_the_most_of_each_figure() -> None:
    one = HostLoad(
        vms=1,
        polls_per_second=9.0,
        document_bytes_per_second=1,
        updates_per_second=9,
        updates=1,
        commands_per_second=9,
        commands=1,
    )
    two = HostLoad(
        vms=2,
        polls_per_second=1.0,
        document_bytes_per_second=8,
        updates_per_second=1,
        updates=8,
        commands_per_second=1,
        commands=8,
    )
    assert combine_hosts([one, two]) == HostLoad(
        vms=2,
        polls_per_second=9.0,
        document_bytes_per_second=8,
        updates_per_second=9,
        updates=8,
        commands_per_second=9,
        commands=8,
    )
