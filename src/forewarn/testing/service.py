"""The whole service inside a test: real sockets, the real operator API and a manual clock.

Needs the extra `[server]`; `pip install 'forewarn[testing]'` installs it.
"""

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
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
from forewarn.settings.file_reader import FileError
from forewarn.settings.load import load_settings
from forewarn.settings.schema import EMULATOR, KEYS, Settings
from forewarn.testing.background import BackgroundContext
from forewarn.testing.duration import DurationLike, to_text
from forewarn.testing.errors import AlreadyStarted, InvalidStart, NotRunning, VmEndpointNotFound
from forewarn.testing.event_actions import EventActions
from forewarn.testing.fault_actions import FaultActions
from forewarn.testing.fleet_loader import FleetLike, fleet_reader
from forewarn.testing.request_queries import RequestQueries
from forewarn.testing.vm import Vm, VmLike


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Give a directory that goes with the context, or else with the process.

    One that is forked off meanwhile takes nothing away when it ends, as it would with `tempfile.TemporaryDirectory`.
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

PORT_TIMEOUT = 10.0
"""Within how many seconds a VM that was just added has its port, on a busy machine."""

START_ERRORS = (FileError, SettingsError, InvalidStart, ListenFailed, PortUnavailable, TooManyListeners)
"""What can be wrong with the fleet, the settings or the machine when a service is made and started."""


class Forewarn(EventActions, FaultActions, RequestQueries):
    """A service of its own, in a thread of its own, on free ports of the loopback, that leaves nothing behind.

    `fleet` is the demonstration fleet unless said otherwise: the text of a fleet file, a path to one, its content as a
    dict, or names of VMs (`web/web-0` in an availability set, `db-0` alone). Time is manual and begins now, or at
    `start`; with `manual_time=False` it is the real one, and `speed` divides notices and durations. `settings` are any
    others that `forewarn up` takes, by their keys: `{"simulated.reboot": "5s"}`.
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
            raise InvalidStart("a real clock cannot begin at another time: leave start out, or manual_time=False")
        self._settings = _resolve_settings(settings or {}, manual_time=manual_time, speed=speed)
        self._clock = ManualClock(_utc(start)) if start is not None else None
        self._fleet = _RecordingFleetReader(fleet_reader(fleet))
        self._background: BackgroundContext[RunningService] | None = None
        self._running: RunningService | None = None
        self._api: ApiClient | None = None

    # Its life.

    def start(self) -> Self:
        """Start it; it is ready when this returns. What is wrong with its fleet or settings is raised here."""
        if self._background is not None:
            raise AlreadyStarted
        self._background = BackgroundContext(self._service, name="forewarn")
        self._running = self._background.start()
        self._api = ApiClient(self.url, self.token)
        return self

    def stop(self) -> None:
        """End it, and wait until it has ended. A second call does nothing."""
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
        # A root of its own: commands that look for the user's own services must not find this one.
        with temporary_directory() as root:
            async with run_service(
                self._settings,
                EMULATOR,
                environ={"XDG_RUNTIME_DIR": str(root)},
                reporter=_NullOutput(),
                clock=self._clock,
                fleet_loader=self._fleet,
                observer=self._request_log.record,
            ) as running:
                running.fleet.scopes.observers.append(self._request_log.observe)
                yield running

    # Where it is.

    @property
    def url(self) -> str:
        """Where the operator API is."""
        return self._current.operator_url

    @property
    def token(self) -> str:
        """An admin's token for the operator API."""
        return local_service.read_token(self.directory / local_service.TOKEN_FILE)

    @property
    def directory(self) -> Path:
        """Its data directory, for `forewarn --data`; it goes with the service."""
        return self._current.directory

    @property
    def environment(self) -> dict[str, str]:
        """What has the command line ask this service: add it to the environment of a process."""
        return {"FOREWARN_URL": self.url, "FOREWARN_TOKEN": self.token}

    @property
    def api(self) -> ApiClient:
        """The operator API, for all that has no helper here."""
        if self._api is None or self._running is None:
            raise NotRunning
        return self._api

    # VMs.

    def vm(self, name: VmLike | None = None) -> Vm:
        """Return a VM; without a name the first one of the fleet, as it is written down."""
        if name is None and not self._fleet.names:
            raise LookupError("this fleet has no VM")
        wanted = self._fleet.names[0] if name is None else str(name)
        deadline = time.monotonic() + PORT_TIMEOUT
        while (
            (found := self.api.vm(wanted)).guest_url is None and self._settings.listen and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        return self._vm(found)

    @property
    def vms(self) -> tuple[Vm, ...]:
        """All VMs, by scope and name."""
        return tuple(map(self._vm, self.api.vms()))

    # Time.

    @property
    def now(self) -> datetime:
        """What time it is for the service."""
        return self._current.fleet.clock.now()

    def advance(self, by: DurationLike) -> datetime:
        """Let time pass, with all that is due on the way, in order; return the time when everything has settled."""
        return self.api.advance(to_text(by)).now

    def advance_to_next(self) -> datetime:
        """Let time pass until something happens next, and return that time."""
        return self.api.advance().now

    # Inside.

    def _vm(self, found: v1.Vm) -> Vm:
        if found.guest_url is None:
            raise VmEndpointNotFound(f"{found.scope}/{found.name}")
        return Vm(self.api, found.scope, found.name, found.guest_url)

    def _initial_names(self) -> set[str]:
        return set(self._fleet.names)

    @property
    def _current(self) -> RunningService:
        if self._running is None:
            raise NotRunning
        return self._running


class _NullOutput:
    """Says nothing: a test's output is the test's."""

    def report(self, sentence: str) -> None:
        """Say nothing."""

    def fleet_file_ignored(self, source: Path) -> None:
        """Say nothing."""

    def fill_progress(self, done: int, total: int) -> None:
        """Say nothing."""


class _RecordingFleetReader:
    """Reads a fleet, and remembers the full names of its VMs as they are written down."""

    def __init__(self, read: FleetLoader) -> None:
        self._read = read
        self.names: list[str] = []

    def __call__(self, context: CreationContext) -> tuple[Scope, ...]:
        scopes = self._read(context)
        self.names = [f"{scope.id}/{vm.name}" for scope in scopes for vm in scope.roster]
        return scopes


def _resolve_settings(overrides: Mapping[str, object], *, manual_time: bool, speed: float) -> Settings:
    """Return the settings of the emulator with these over them; what the user has set for a real one plays no part."""
    for key in overrides:
        if key not in KEYS:
            raise SettingNotFound("settings", key, tuple(KEYS))
    defaults = {"ephemeral": True, "listen": ANY_PORT, "operator": ANY_PORT, "manual_time": manual_time, "speed": speed}
    return load_settings(EMULATOR, flags={**defaults, **overrides}, environ={}).settings


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidStart(f"{moment} has no time zone: write datetime(…, tzinfo=UTC)")
    return moment.astimezone(UTC)
