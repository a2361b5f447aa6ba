"""Main program of `forewarn up`: start and stop the emulator. Needs the extra `[server]`."""

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Self

import uvloop

from forewarn.api.errors import ApiError
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, write_message
from forewarn.cli.process import logs
from forewarn.cli.views.progress import ProgressBar
from forewarn.compose import (
    DataDirectoryInUse,
    EmulatorNotAllowed,
    InvalidCertificate,
    InvalidDataDirectory,
    run_service,
)
from forewarn.core.errors import CoreError
from forewarn.files import UnsafeDirectory, keep_owner_permissions
from forewarn.fleet.errors import FleetError
from forewarn.fleet.event_loop import shorten_switch_interval, start_without_gc
from forewarn.guest.link_local import LinkLocalError
from forewarn.guest.vm_listeners import ListenFailed, PortUnavailable, TooManyListeners
from forewarn.settings.rehearsal import Rehearsal
from forewarn.settings.schema import EMULATOR, Settings
from forewarn.store.port import StoreError
from forewarn.testing.player import load_player

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

START_ERRORS = (
    DataDirectoryInUse,
    ApiError,
    ListenFailed,
    CoreError,
    FleetError,
    LinkLocalError,
    PortUnavailable,
    InvalidDataDirectory,
    EmulatorNotAllowed,
    OSError,
    StoreError,
    TooManyListeners,
    InvalidCertificate,
    UnsafeDirectory,
)
"""Errors that can prevent a service with valid settings from starting."""


def run(settings: Settings, output: Output, settings_file: Path | None, rehearsal: Rehearsal | None = None) -> None:
    """Run the service until a stop signal."""
    logs.configure_logging(settings.log)
    raise_file_limit()
    keep_owner_permissions()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(settings, output, settings_file, rehearsal))
        except START_ERRORS as error:
            raise CliError(ExitCode.REFUSED, str(error)) from error


async def _serve(settings: Settings, output: Output, settings_file: Path | None, rehearsal: Rehearsal | None) -> None:
    stop = _StopSignal()
    shorten_switch_interval()
    try:
        with _Talk() as talk:
            for message in () if rehearsal is None else rehearsal.messages():
                write_message(message)
            service = run_service(
                settings, EMULATOR, environ=os.environ, reporter=talk, rehearsal=rehearsal, load_player=load_player
            )
            async with start_without_gc(service) as running:
                stop.is_started = True
                from forewarn.cli.process.ready_message import show_ready  # imported late: guests are already served

                show_ready(running, output, settings_file)
                await stop.received.wait()
                write_message("Stopping.")
    except asyncio.CancelledError:
        if not stop.received.is_set():
            raise
    write_message("Stopped.")


class _StopSignal:
    """A stop request. The first signal stops the service in order, even during the start; then Ctrl-C kills it."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self.is_started = False
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        if self.received.is_set():
            return
        self.received.set()
        if not self.is_started and self._main is not None:
            self._main.cancel()
        self._loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class _Talk:
    """Writes the messages of the start to stderr."""

    def __init__(self) -> None:
        self._bar = ProgressBar("Importing the fleet file")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.end()

    def report(self, sentence: str) -> None:
        """Write a message."""
        write_message(sentence)

    def fleet_file_ignored(self, source: Path) -> None:
        """Write that the fleet file is ignored, and what to do."""
        write_message(
            f"The data directory already has a fleet; {source} is ignored. "
            f"`forewarn fleet import {source}` imports it; to start with it, use another --data DIR or --ephemeral."
        )

    def fill_progress(self, done: int, total: int) -> None:
        """Show how many scopes of the fleet file are saved."""
        self._bar.show(done, total)


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: every VM has a listener and every guest a connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
