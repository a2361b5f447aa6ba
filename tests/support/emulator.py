"""A real `forewarn up` process on manual time (the emulator) for third-party clients."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.api.v1 import ScheduleEvents
from forewarn.core.event import EventType
from forewarn.core.scope import ScopeKind

FOREWARN = (sys.executable, "-m", "forewarn.cli")
NEWEST = "2020-07-01"
GUARD = 120.0
"""Timeout of a program, in seconds."""

POOL = 32
"""Number of scopes of each kind that a service has for its tests."""

SCOPES: dict[ScopeKind, str] = {
    ScopeKind.AVAILABILITY_SET: 'update_domains = 3\nvms = [{ name = "vm-{n}", count = 3 }]',
    ScopeKind.CLOUD_SERVICE: 'update_domains = 2\nvms = [{ name = "FrontEnd_IN_{n}", count = 2 }]',
    ScopeKind.PLACEMENT_GROUP: 'scale_set = "batch"\npriority = "low"\nvms = [{ count = 2 }]',
}


class Vm(msgspec.Struct, frozen=True):
    """A VM of the service, and the URL of its endpoint."""

    scope: str
    name: str
    url: str

    def events(self, version: str = NEWEST) -> str:
        """Return the URL of its events."""
        return f"{self.url}{events_path(version)}"

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


def events_path(version: str = NEWEST) -> str:
    """Return the path and query of a request for events."""
    return f"/metadata/scheduledevents?api-version={version}"


def plain_environment(**more: str) -> dict[str, str]:
    """Return an environment without proxy variables and Forewarn settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("FOREWARN_")
    }
    return kept | more


def pool_of_scopes() -> str:
    """Write a fleet file with enough scopes of each kind to give each test separate ones."""
    scopes = (
        f'[[scopes]]\nname = "{kind}-{n}"\nkind = "{kind}"\n{rest}\n'
        for kind, rest in SCOPES.items()
        for n in range(POOL)
    )
    return "\n".join(scopes)


class UpOutput(msgspec.Struct, frozen=True):
    """The startup output of `forewarn up`, as far as tests need it."""

    pid: int
    operator_url: str
    data: str
    token_file: str
    guest_urls: dict[str, str]

    def api(self) -> ApiClient:
        """Return a client of the operator API."""
        return ApiClient(self.operator_url, read_token(Path(self.token_file)))


def _vm(full_name: str, url: str) -> Vm:
    scope, _, name = full_name.partition("/")
    return Vm(scope, name, url)


class EmulatorProcess:
    """The running process, from the operators' view."""

    def __init__(self, started: UpOutput) -> None:
        self._api = started.api()
        self._vms = [_vm(full_name, url) for full_name, url in started.guest_urls.items()]
        self._unused = {kind: [f"{kind}-{n}" for n in range(POOL)] for kind in SCOPES}

    def scope_to_itself(self, kind: ScopeKind) -> tuple[Vm, ...]:
        """Return the VMs of an unused scope."""
        scope = self._unused[kind].pop(0)
        return tuple(vm for vm in self._vms if vm.scope == scope)

    def schedule(self, type_: EventType, *vms: Vm, notice: str = "1h") -> tuple[str, ...]:
        """Schedule events; they start when approved, or when the clock advances by the notice."""
        ask = ScheduleEvents(type=type_, vms=tuple(str(vm) for vm in vms), notice=notice)
        return tuple(made.id for made in self._api.schedule(ask).created)

    def advance(self, by: str) -> None:
        """Advance the clock; return after everything due has happened."""
        self._api.advance(by)

    def statuses(self, vm: Vm) -> dict[str, str]:
        """Return the status of each open event of a VM's scope."""
        return {event.id: event.status for event in self._api.events(scope=vm.scope)}


@contextmanager
def run_emulator(directory: Path, **environ: str) -> Iterator[EmulatorProcess]:
    """Run a service with a pool of scopes on any free ports of loopback."""
    fleet = directory / "fleet.toml"
    fleet.write_text(pool_of_scopes(), encoding="utf-8")
    with forewarn_up(directory, "--fleet", str(fleet), **environ) as started:
        yield EmulatorProcess(started)


NO_WAIT = {"FOREWARN_POLICY_SHORTEST_NOTICE": "0s"}
"""Settings of a service whose clients ask when the test wants them to, so that no advance has to wait for them."""


@contextmanager
def forewarn_up(directory: Path, *options: str, within: Sequence[str] = (), **environ: str) -> Iterator[UpOutput]:
    """Run `forewarn up` without stored data, through a wrapper command if given; end it with SIGINT."""
    ports = ("--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0")
    command = [*within, *FOREWARN, "up", "--ephemeral", "--manual-time", "--output", "json", *ports, *options]
    log = directory / "up.log"
    with (
        log.open("w") as talk,
        subprocess.Popen(
            command,
            env=plain_environment(XDG_RUNTIME_DIR=str(directory), **NO_WAIT, **environ),
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=talk,
        ) as process,
    ):
        try:
            first_line = process.stdout.readline() if process.stdout else b""
            assert first_line, f"the service did not start; its output: {log.read_text()}"
            yield msgspec.json.decode(first_line, type=UpOutput)
        finally:
            _end(process)
    assert process.returncode == 0, f"the service did not exit cleanly; its output: {log.read_text()}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GUARD)
    finally:
        process.kill()
