"""A real service on manual time with a few VMs, and real agents in some of them."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from forewarn.api.client import ApiClient
from forewarn.api.v1 import CancelEvent, ScheduleEvents
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.support.emulator import UpOutput, forewarn_up
from tests.support.processes import Program, wait_until

FOREWARN = Path(sys.executable).parent / "forewarn"


class ServiceWithAgents:
    """The service as its operators see it, and the agents inside its VMs."""

    def __init__(self, home: Path, started: UpOutput) -> None:
        self._home = home
        self._started = started
        self.api: ApiClient = started.api()

    @contextmanager
    def agent(self, vm: str, settings: str, **environ: str) -> Iterator[Program]:
        """Run an agent inside a VM while the context is open; it must not exit by itself."""
        directory = self._home / vm.replace("/", "-")
        directory.mkdir()
        file = directory / "agent.toml"
        file.write_text(settings)
        variables: Mapping[str, str] = {
            "FOREWARN_ENDPOINT": self._started.guest_urls[vm],
            "FOREWARN_AGENT_STATE": str(directory / "state"),
            "FOREWARN_AGENT_HTTP_LISTEN": "none",
            **environ,
        }
        agent = Program([str(FOREWARN), "agent", "run", "--config", str(file)], directory / "agent.log", variables)
        agent.start()
        try:
            yield agent
            assert agent.is_running, agent.output()
        finally:
            agent.kill()

    def schedule(self, type_: EventType, vm: str) -> str:
        """Announce an event with a long notice, so that only an approval starts it; return its id."""
        (made,) = self.api.schedule(ScheduleEvents(type=type_, vms=(vm,), notice="10h")).created
        return made.id

    def cancel(self, event: str) -> None:
        """Cancel an event."""
        self.api.cancel(event, CancelEvent(reason="not needed any more"))

    def advance(self, by: str) -> None:
        """Advance the clock; return after everything due has happened."""
        self.api.advance(by)

    def journal_kinds(self, event: str) -> list[EntryKind]:
        """Return the kinds of the journal lines of an event so far."""
        return [entry.action for entry in self.api.journal(event=event)]

    def wait_for(self, did: EntryKind, event: str) -> None:
        """Wait until the journal has this line of an event."""
        wait_until(lambda: did in self.journal_kinds(event), f"{event} to be {did}")


@contextmanager
def run_service_with_agents(home: Path, fleet: str) -> Iterator[ServiceWithAgents]:
    """Run a service with this fleet while the context is open."""
    file = home / "fleet.toml"
    file.write_text(fleet)
    with forewarn_up(home, "--fleet", str(file)) as started:
        yield ServiceWithAgents(home, started)
