"""The service process under test, as the benchmark sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.loop_monitor import Turns
from bench.process import ChildProcess, run_child, wait_for
from bench.service_main import Counters, CreatedEvents, GetCounters, GetTurns, Ready, ResetTurns, Schedule, Task

UNREACHED = 1_000_000_000
"""A rate limit that is active, but never reached."""


class ServiceProcess:
    """The process, its port, and its commands."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self.pid = child.pid
        ready = child.receive(Ready)
        self.port = ready.port
        self.operator_url = ready.operator_url
        self.token = Path(ready.token_file).read_text(encoding="ascii").strip()

    def counters(self) -> Counters:
        """Return the counters of the endpoint."""
        self._child.send(GetCounters())
        return self._child.receive(Counters)

    def schedule(self, vms: tuple[str, ...], *, not_before: datetime | None = None) -> tuple[tuple[str, str], ...]:
        """Schedule events, and return pairs of scope and event."""
        self._child.send(Schedule(vms, not_before))
        return self._child.receive(CreatedEvents).events

    def reset_turns(self) -> None:
        """Measure the turns of the event loop from now on."""
        self._child.send(ResetTurns())

    def turns(self) -> Turns:
        """Return the turns of the event loop since the last reset."""
        self._child.send(GetTurns())
        return self._child.receive(Turns)

    def wait_for_long_polls(self, number: int) -> None:
        """Wait until this many requests are held."""
        wait_for(lambda: self.counters().long_polls == number, f"{number} held requests")


@contextmanager
def run_service_process(task: Task) -> Iterator[ServiceProcess]:
    """Run the process while the context is open."""
    with run_child("bench.service_main", task) as child:
        yield ServiceProcess(child)
