"""Load of a simulated cell: what its hosts and its control node have to carry, counted per second."""

from array import array
from collections.abc import Collection, Iterable

import msgspec


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The most that any host carries, figure by figure."""

    vms: int
    polls_per_second: float
    document_bytes_per_second: int
    """In the second with the largest documents."""
    updates_per_second: int
    """Changed scopes that a host receives in its busiest second."""
    updates: int
    commands_per_second: int
    """Approvals, begun and settled impacts that a host sends in its busiest second."""
    commands: int


class ControlLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the control node of the busiest cell carries, if it is the only one that is left."""

    cell: int
    saves_per_second: int
    """In the busiest second; `saves_per_minute` in the busiest minute."""
    saves_per_minute: int
    saves: int
    journal_lines: int
    saved_bytes: int
    largest_record: int
    commands_per_second: int
    """Approvals, begun and settled impacts in the busiest second; heartbeats of hosts come on top."""
    heartbeats_per_second: float
    """Renewals of the hosts' leases, and their reports of polling scopes."""
    updates_per_second: int
    """Copies of changed scopes that NATS sends to hosts, in the busiest second."""


RENEW_SECONDS, REPORT_SECONDS = 3, 60
"""How often each host renews its lease, and how often it reports which scopes have polled."""


class TimeCounter:
    """A count for each second."""

    def __init__(self, seconds: int) -> None:
        self._counts = array("L", bytes(array("L").itemsize * (seconds + 1)))

    def add(self, second: float, count: int = 1) -> None:
        """Count something."""
        self._counts[int(second)] += count

    def peak(self, width: int = 1) -> int:
        """Return the highest count in so many seconds."""
        if width == 1:
            return max(self._counts)
        return max(sum(self._counts[start : start + width]) for start in range(0, len(self._counts), width))

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self._counts)


class HostCounters:
    """The highest count of any second, and the sum, of each host. Time never goes back."""

    def __init__(self, hosts: int) -> None:
        self._seconds = array("l", [-1]) * hosts
        self._counts = array("l", [0]) * hosts
        self._peaks = array("l", [0]) * hosts
        self._totals = array("l", [0]) * hosts

    def add(self, host: int, second: float) -> None:
        """Count something on a host."""
        self._totals[host] += 1
        if self._seconds[host] != int(second):
            self._seconds[host] = int(second)
            self._counts[host] = 0
        count = self._counts[host] = self._counts[host] + 1
        if count > self._peaks[host]:
            self._peaks[host] = count

    @property
    def peak(self) -> int:
        """The highest count of any host in any second."""
        return max(self._peaks)

    @property
    def most(self) -> int:
        """The highest sum of any host."""
        return max(self._totals)


class CellCounters:
    """Everything that is counted in one cell."""

    def __init__(self, *, hosts: int, seconds: int) -> None:
        self.vms = array("l", [0]) * hosts
        self.poll_rates = array("d", [0.0]) * hosts
        self._byte_rates = array("d", [0.0]) * hosts
        self._peak_polls = 0.0
        self._peak_bytes = 0.0
        self._peak_vms = 0
        self.host_updates = HostCounters(hosts)
        self.host_commands = HostCounters(hosts)
        self.saves = TimeCounter(seconds)
        self.commands = TimeCounter(seconds)
        self.updates = TimeCounter(seconds)
        self.journal_lines = 0
        self.saved_bytes = 0
        self.largest_record = 0
        self._hosts = hosts

    def place(self, host: int, rate: float, document: int, count: int) -> None:
        """Add a VM that polls at a rate to a host; with count -1, remove it."""
        self.vms[host] += count
        self.poll_rates[host] += count * rate
        self.change_document(host, count * rate * document)
        self._peak_vms = max(self._peak_vms, self.vms[host])
        self._peak_polls = max(self._peak_polls, self.poll_rates[host])

    def change_document(self, host: int, bytes_per_second: float) -> None:
        """Note that the documents that a host sends have grown, or shrunk."""
        self._byte_rates[host] += bytes_per_second
        self._peak_bytes = max(self._peak_bytes, self._byte_rates[host])

    def save(self, second: float, size: int, lines: int, hosts: Collection[int] = ()) -> None:
        """Count a saved record that these hosts follow."""
        self.saves.add(second)
        self.journal_lines += lines
        self.saved_bytes += size
        self.largest_record = max(self.largest_record, size)
        for host in hosts:
            self.host_updates.add(host, second)
        self.updates.add(second, len(hosts))

    def command(self, second: float, host: int) -> None:
        """Count a command of a host."""
        self.commands.add(second)
        self.host_commands.add(host, second)

    def host_load(self) -> HostLoad:
        """Return the most that any host carries."""
        return HostLoad(
            vms=self._peak_vms,
            polls_per_second=round(self._peak_polls, 3),
            document_bytes_per_second=round(self._peak_bytes),
            updates_per_second=self.host_updates.peak,
            updates=self.host_updates.most,
            commands_per_second=self.host_commands.peak,
            commands=self.host_commands.most,
        )

    def control_load(self, cell: int) -> ControlLoad:
        """Return what the control node carries."""
        return ControlLoad(
            cell=cell,
            saves_per_second=self.saves.peak(),
            saves_per_minute=self.saves.peak(60),
            saves=self.saves.total,
            journal_lines=self.journal_lines,
            saved_bytes=self.saved_bytes,
            largest_record=self.largest_record,
            commands_per_second=self.commands.peak(),
            heartbeats_per_second=round(self._hosts / RENEW_SECONDS + self._hosts / REPORT_SECONDS, 3),
            updates_per_second=self.updates.peak(),
        )


def combine_hosts(loads: Iterable[HostLoad]) -> HostLoad:
    """Return the highest value of each figure."""
    found = list(loads)
    fields = HostLoad.__struct_fields__
    return HostLoad(**{field: max(getattr(load, field) for load in found) for field in fields})
