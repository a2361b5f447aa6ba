"""The whole service inside a test: real sockets, the real operator API and a manual clock.

Needs the extra `[server]`, which `[testing]` includes.
"""

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from forewarn.api import local_service, v1
from forewarn.api.client import ApiClient
from forewarn.api.fleet_file import CreationContext
from forewarn.clock import ManualClock
from forewarn.compose import FleetLoader, RunningService, run_service
from forewarn.core.scope import Scope
from forewarn.guest.vm_listeners import ListenFailed, PortUnavailable, TooManyListeners
from forewarn.settings.errors import SettingNotFound, SettingsError
from forewarn.settings.file_reader import FileError, describe_unknown_key
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, KEYS, Settings
from forewarn.testing.background import BackgroundContext
from forewarn.testing.duration import DurationLike, to_text
from forewarn.testing.errors import AlreadyStarted, InvalidStart, NotRunning, VmEndpointNotFound
from forewarn.testing.event_actions import EventActions
from forewarn.testing.fault_actions import FaultActions
from forewarn.testing.fleet_loader import FleetLike, fleet_reader
from forewarn.testing.player import load_player
from forewarn.testing.request_queries import RequestQueries
from forewarn.testing.vm import Vm, VmLike, VmProgram


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Create a directory that is removed when the context ends, or at the latest when the process ends.

    A forked child process does not remove it when it ends, as it would with `tempfile.TemporaryDirectory`.
    """
    directory, owner = Path(tempfile.mkdtemp(prefix="forewarn-test-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    try:
        yield directory
    finally:
        atexit.unregister(remove)
        remove()


ANY_PORT = "127.0.0.1:0"

PORT_CHECKS, PORT_CHECK_INTERVAL = 1000, 0.01
"""How often to ask for the port of a VM that was just added, and the seconds between two requests.

The service answers each request, so a machine that is too busy to open the port delays the requests, too.
"""

START_ERRORS = (FileError, SettingsError, InvalidStart, ListenFailed, PortUnavailable, TooManyListeners)
"""What `Forewarn(…).start()` raises if something is wrong with the fleet, the settings or the machine."""


class Forewarn(EventActions, FaultActions, RequestQueries):
    """An isolated service in a background thread, on free loopback ports; `stop` removes everything it created.

    `fleet` is the text of a fleet file, a path to one, its content as a dict, or names of VMs (`web/web-0` in an
    availability set, `db-0` standalone); default: the demonstration fleet. The clock is manual and starts now, or at
    `start`; with `manual_time=False` it is the system clock, and `speed` divides notices and durations. `settings`
    are other settings of `forewarn up`, by key: `{"simulated.reboot": "5s"}`.
    """

    def __init__(
        self,
        fleet: FleetLike = None,
        *,
        manual_time: bool = True,
        speed: float = 1.0,
        start: datetime | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        if start is not None and not manual_time:
            raise InvalidStart("start needs a manual clock: omit start, or omit manual_time=False")
        self._settings = _resolve_settings(settings or {}, manual_time=manual_time, speed=speed)
        self._clock = ManualClock(_utc(start)) if start is not None else None
        self._fleet = _RecordingFleetReader(fleet_reader(fleet))
        self._background: BackgroundContext[RunningService] | None = None
        self._running: RunningService | None = None
        self._api: ApiClient | None = None
        self._programs: list[VmProgram] = []

    # Start and stop.

    def start(self) -> Self:
        """Start the service and wait until it is ready. Raises one of START_ERRORS for a wrong fleet or setting."""
        if self._background is not None:
            raise AlreadyStarted
        self._background = BackgroundContext(self._service, name="forewarn")
        self._running = self._background.start()
        self._api = ApiClient(self.url, self.token)
        return self

    def stop(self) -> None:
        """Stop the service, and the programs that run as its VMs, and wait for them. A second call does nothing."""
        with ExitStack() as stack:
            for program in self._programs:
                program.terminate()  # all at once, before the first is waited for
                stack.push(program)
        self._programs.clear()
        background, self._running = self._background, None
        if background is not None:
            background.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Forewarn at {self.url}>" if self._running is not None else "<Forewarn, not running>"

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[RunningService]:
        # A separate runtime directory: commands that look for the user's own services must not find this one.
        with temporary_directory() as root:
            async with run_service(
                self._settings,
                EMULATOR,
                environ={"XDG_RUNTIME_DIR": str(root)},
                reporter=_NullOutput(),
                clock=self._clock,
                fleet_loader=self._fleet,
                observer=self._request_log.record,
                load_player=load_player,
            ) as running:
                running.fleet.scopes.add_observers(self._request_log.observe)
                yield running

    # Addresses.

    @property
    def url(self) -> str:
        """The URL of the operator API."""
        return self._current.operator_url

    @property
    def token(self) -> str:
        """A token with the role admin for the operator API."""
        return local_service.read_token(self.directory / local_service.TOKEN_FILE)

    @property
    def directory(self) -> Path:
        """The data directory, for `forewarn --data`; it is removed when the service stops."""
        return self._current.directory

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which the command `forewarn` of a process uses this service."""
        return {"FOREWARN_URL": self.url, "FOREWARN_TOKEN": self.token}

    @property
    def api(self) -> ApiClient:
        """A client of the operator API, for everything that this class has no method for."""
        if self._api is None or self._running is None:
            raise NotRunning
        return self._api

    # VMs.

    def vm(self, name: VmLike | None = None) -> Vm:
        """Return the VM of this name; without a name, the first VM in the order of the fleet file."""
        if name is None and not self._fleet.names:
            raise LookupError("this fleet has no VM")
        wanted = self._fleet.names[0] if name is None else str(name)
        found = self.api.vm(wanted)
        for _ in range(PORT_CHECKS if self._settings.listen else 0):
            if found.guest_url is not None:
                break
            time.sleep(PORT_CHECK_INTERVAL)
            found = self.api.vm(wanted)
        return self._vm(found)

    @property
    def vms(self) -> tuple[Vm, ...]:
        """All VMs, by scope and name."""
        return tuple(map(self._vm, self.api.vms()))

    # Time.

    @property
    def now(self) -> datetime:
        """The current time of the service's clock."""
        return self._current.fleet.clock.now()

    def advance(self, by: DurationLike) -> datetime:
        """Advance the clock, and return the new time when everything that became due has happened, in order."""
        return self.api.advance(to_text(by)).now

    def advance_to_next(self) -> datetime:
        """Advance the clock to the next time at which something is due, and return that time."""
        return self.api.advance().now

    def _vm(self, found: v1.Vm) -> Vm:
        if found.guest_url is None:
            raise VmEndpointNotFound(f"{found.scope}/{found.name}")
        return Vm(self.api, found.scope, found.name, found.guest_url, self._programs)

    def _initial_names(self) -> set[str]:
        return set(self._fleet.names)

    @property
    def _current(self) -> RunningService:
        if self._running is None:
            raise NotRunning
        return self._running


class _NullOutput:
    """Discards the service's messages, so that they do not mix with the test's output."""

    def report(self, sentence: str) -> None:
        """Do nothing."""

    def fleet_file_ignored(self, source: Path) -> None:
        """Do nothing."""

    def fill_progress(self, done: int, total: int) -> None:
        """Do nothing."""


class _RecordingFleetReader:
    """Reads a fleet, and remembers the full names of its VMs in the order of the file."""

    def __init__(self, read: FleetLoader) -> None:
        self._read = read
        self.names: list[str] = []

    def __call__(self, context: CreationContext) -> tuple[Scope, ...]:
        scopes = self._read(context)
        self.names = [f"{scope.id}/{vm.name}" for scope in scopes for vm in scope.roster]
        return scopes


def _resolve_settings(overrides: Mapping[str, object], *, manual_time: bool, speed: float) -> Settings:
    """Return the emulator's settings with these overrides; settings files and variables of the user have no effect."""
    for key in overrides:
        if key not in KEYS:
            raise SettingNotFound("settings", key, describe_unknown_key(key, KEYS))
    defaults = {"ephemeral": True, "listen": ANY_PORT, "operator": ANY_PORT, "manual_time": manual_time, "speed": speed}
    defaults["policy.shortest_notice"] = "0s"  # a test waits for what it needs, and a speed means exactly that
    return load_settings(EMULATOR, flags={**defaults, **overrides}, environ={}).settings


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidStart(f"start {moment} has no time zone: use datetime(…, tzinfo=UTC)")
    return moment.astimezone(UTC)
