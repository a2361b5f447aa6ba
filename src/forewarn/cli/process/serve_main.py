"""Main program of `forewarn serve`: logging, signals, reload, sd_notify and watchdog. Needs the extra `[server]`."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import uvloop

from forewarn.api.errors import ApiError
from forewarn.cli.errors import ExitCode
from forewarn.cli.output import moment_text
from forewarn.cli.process import logs
from forewarn.cli.process.systemd_notify import SystemdNotifier
from forewarn.cli.process.up_main import START_ERRORS, raise_file_limit
from forewarn.compose import InvalidCertificate, RunningService, run_service
from forewarn.compose.reload import ReloadSettings
from forewarn.core.text import count_text
from forewarn.files import keep_owner_permissions
from forewarn.fleet.errors import FleetError
from forewarn.fleet.event_loop import shorten_switch_interval, start_without_gc, tasks_until_exit
from forewarn.settings.errors import SettingsError
from forewarn.settings.file_reader import FileError
from forewarn.settings.reload import SettingsChange
from forewarn.settings.schema import PRODUCTION, CommandSettings, Settings
from forewarn.settings.types import PlatformName, RoleName

log = logging.getLogger("forewarn.service")

MAX_OVERDUE = timedelta(seconds=10)
"""How late due work may be before the scheduler counts as stuck."""

IMPORT_LOG_STEPS = 10
"""How many progress lines the import of a fleet file logs at most."""

MAX_LOGGED_HOLDS = 20
"""How many holds the start logs one by one."""

READY = "READY=1"

RELOAD_ERRORS = (ApiError, FleetError, OSError, SettingsError, InvalidCertificate)
"""Errors of a reload (settings, token, certificate, storage) that must not stop the service."""


def run(settings: Settings, read_again: Callable[[], Settings], settings_file: Path | None) -> None:
    """Run the service until a stop signal; SIGHUP reloads the settings."""
    logs.configure_logging(settings.log)
    raise_file_limit()
    keep_owner_permissions()
    supervised = _SupervisedHost if settings.role is RoleName.HOST else _SupervisedService
    service = supervised(settings, read_again, settings_file)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(service.serve())
        except (*START_ERRORS, FileError) as error:
            log.critical("%s: %s", "cannot go on" if service.is_started else "cannot start", error)
            raise SystemExit(ExitCode.USAGE if isinstance(error, FileError) else ExitCode.REFUSED) from error


class _SupervisedService:
    """The service with signal handling, reload and systemd notifications."""

    def __init__(self, settings: Settings, read_again: Callable[[], Settings], settings_file: Path | None) -> None:
        self._settings = settings
        self._read_again = read_again
        self._settings_file = settings_file
        self._notifier = SystemdNotifier(os.environ)
        self._signalled = asyncio.Event()
        self.is_started = self._is_ending = False

    async def serve(self) -> None:
        """Serve until a stop signal, which may also arrive during the start."""
        self._install_signal_handlers()
        shorten_switch_interval()
        try:
            service = run_service(self._settings, PRODUCTION, environ=os.environ, reporter=_LogTalk())
            async with start_without_gc(service) as running:
                self.is_started = True
                self._log_ready(running)
                async with tasks_until_exit() as tasks:
                    tasks.create_task(
                        self._notifier.run_watchdog(lambda: running.fleet.duties.overdue < MAX_OVERDUE),
                        name="watchdog",
                    )
                    await self._reload_until_end(running.reload)
                log.info("stopping")
                self._notifier.notify("STOPPING=1")
        except asyncio.CancelledError:
            if not self._is_ending:
                raise
        log.info("stopped")

    def _install_signal_handlers(self) -> None:
        loop, main = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            self._is_ending = True
            self._signalled.set()
            if not self.is_started and main is not None:
                main.cancel()

        loop.add_signal_handler(signal.SIGTERM, end)
        loop.add_signal_handler(signal.SIGINT, end)
        loop.add_signal_handler(signal.SIGHUP, self._signalled.set)

    async def _reload_until_end(self, apply: ReloadSettings) -> None:
        while True:
            await self._signalled.wait()
            self._signalled.clear()
            if self._is_ending:
                return
            self._notifier.notify_reloading()
            await self._reload(apply)
            self._notifier.notify(READY)

    def _log_ready(self, running: RunningService) -> None:
        self._warn_about_platform()
        self._log_holds(running)
        facts = {
            "pid": os.getpid(),
            "operator_url": running.operator_url,
            "link_local_url": running.link_local_url,
            "data": str(running.directory),
            "settings_file": None if self._settings_file is None else str(self._settings_file.absolute()),
            "vms": running.fleet.replica.vms,
        }
        log.info("ready", extra=facts)
        self._notifier.notify(READY, f"STATUS=Serves {count_text(running.fleet.replica.vms, 'VM')}.")

    def _warn_about_platform(self) -> None:
        if self._settings.platform is PlatformName.SIMULATED:
            log.warning("the platform is simulated: maintenance is announced but not carried out on any VM")
        self._check_program(self._settings.command)

    def _log_holds(self, running: RunningService) -> None:
        """Warn about what keeps planned maintenance from starting."""
        holds = tuple(running.fleet.holds.all())
        for scope, hold in holds[:MAX_LOGGED_HOLDS]:
            what = "all planned maintenance is held" if scope is None else "planned maintenance of a scope is held"
            facts = {"scope": scope, "by": hold.by, "since": moment_text(hold.at), "reason": hold.reason}
            log.warning(what, extra=facts)
        if len(holds) > MAX_LOGGED_HOLDS:
            log.warning("more scopes are held; `forewarn hold` lists them", extra={"holds": len(holds)})

    def _check_program(self, command: CommandSettings) -> None:
        """Warn about a missing program at the start, instead of when the first maintenance fails."""
        if self._settings.platform is PlatformName.COMMAND and shutil.which(command.program[0]) is None:
            log.warning("%s cannot be run, so all maintenance will fail: check command.program", command.program[0])

    async def _reload(self, apply: ReloadSettings) -> None:
        """Apply changed settings that need no restart. Invalid settings are logged and change nothing."""
        try:
            read = await asyncio.to_thread(self._read_again)
            changed = await apply(read)
        except RELOAD_ERRORS as error:
            log.error("reload failed, keeping the current settings: %s", error)  # noqa: TRY400 - no stack trace needed
            return
        logs.configure_logging(read.log)
        self._check_program(read.command)
        if changed.live:
            log.info("settings reloaded", extra={"changed": changed.live})
        elif not changed.after_restart:
            log.info("no setting has changed; token and certificate were read again")
        if changed.after_restart:
            log.warning("changed settings that need a restart: %s", ", ".join(changed.after_restart))


class _SupervisedHost(_SupervisedService):
    """The process of a host, with the same signals, reload and notifications."""

    async def serve(self) -> None:
        """Serve until a stop signal, which may also arrive during the start."""
        from forewarn.compose.host import run_host  # it needs the extra [cluster]

        self._install_signal_handlers()
        shorten_switch_interval()
        try:
            host = run_host(self._settings, environ=os.environ, reporter=_LogTalk())
            async with start_without_gc(host) as running:
                self.is_started = True
                self._warn_about_platform()
                facts = {
                    "pid": os.getpid(),
                    "host": running.fleet.host,
                    "term": running.fleet.client.term,
                    "operator_url": running.url,
                    "link_local_url": running.guests.link_local_url,
                    "data": str(running.directory),
                    "vms": running.fleet.vms,
                }
                log.info("ready", extra=facts)
                self._notifier.notify(READY, f"STATUS=Serves {count_text(running.fleet.vms, 'VM')} of a host.")
                async with tasks_until_exit() as tasks:
                    tasks.create_task(self._notifier.run_watchdog(lambda: True), name="watchdog")

                    async def reload(settings: Settings) -> SettingsChange:
                        return running.reload(settings)

                    await self._reload_until_end(reload)
                log.info("stopping")
                self._notifier.notify("STOPPING=1")
        except asyncio.CancelledError:
            if not self._is_ending:
                raise
        log.info("stopped")


class _LogTalk:
    """Logs the messages of the start."""

    def __init__(self) -> None:
        self._step = 0

    def report(self, sentence: str) -> None:
        """Log a warning."""
        log.warning(sentence)

    def fleet_file_ignored(self, source: Path) -> None:
        """Log that the fleet file is ignored, at level info: after the first start this is normal."""
        log.info("the data directory already has a fleet; ignoring the fleet file", extra={"fleet": str(source)})

    def fill_progress(self, done: int, total: int) -> None:
        """Log from time to time how many scopes of the fleet file are saved."""
        step = done * IMPORT_LOG_STEPS // total
        if step > self._step:
            self._step = step
            log.info("importing the fleet file", extra={"done": done, "total": total})
