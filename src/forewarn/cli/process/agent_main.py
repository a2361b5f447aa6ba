"""Main program of `forewarn agent run`: logging, signals and sd_notify around the agent.

It runs in a fresh interpreter (exec), because the modules that parse the command line take a third of the memory and a
daemon does not need them."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from forewarn.agent.compose import AgentStartFailed, open_context
from forewarn.agent.daemon import Agent
from forewarn.agent.lock import StateDirectoryError
from forewarn.agent.settings import AgentSettings, read_settings
from forewarn.cli.errors import ExitCode
from forewarn.cli.output import write_message
from forewarn.cli.process.logs import TextFormatter, configure_logging
from forewarn.cli.process.systemd_notify import SystemdNotifier
from forewarn.client.errors import ClientError
from forewarn.settings.errors import SettingsError

log = logging.getLogger("forewarn.agent")

DRY_RUN = "dry-run"
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")

SHUTDOWN_TIMEOUT = 10.0
"""How many seconds an orderly shutdown may take."""


def exec_agent(file: Path | None, environ: Mapping[str, str], *, dry_run: bool) -> None:
    """Replace this process by the agent (exec). The settings have been checked."""
    arguments = [str(file or ""), DRY_RUN if dry_run else ""]
    if sys.platform == "win32" or not sys.executable:
        run_agent(read_settings(file, environ), dry_run=dry_run)
        return
    os.execve(sys.executable, [sys.executable, "-P", "-m", __name__, *arguments], dict(environ))  # noqa: S606  # our own program


def main(file: str, mode: str) -> None:
    """Run the agent in the fresh interpreter."""
    try:
        settings = read_settings(Path(file) if file else None, os.environ)
        run_agent(settings, dry_run=mode == DRY_RUN)
    except SettingsError as error:
        write_message(f"forewarn: {error}")
        sys.exit(ExitCode.USAGE)


def run_agent(settings: AgentSettings, *, dry_run: bool) -> None:
    """Run the agent until a stop signal."""
    formatter = configure_logging(settings.log)
    try:
        asyncio.run(_run(settings, formatter, dry_run=dry_run))
    except (AgentStartFailed, ClientError, StateDirectoryError) as error:
        log.critical("cannot start: %s", error)
        raise SystemExit(ExitCode.USAGE) from error


async def _run(settings: AgentSettings, formatter: TextFormatter, *, dry_run: bool) -> None:
    stop = asyncio.Event()
    _install_signal_handlers(stop)
    notifier = SystemdNotifier(os.environ)
    async with (
        open_context(settings, hide=formatter.add_secret, dry_run=dry_run) as equipment,
        Agent(equipment).running(),
    ):
        watchdog = asyncio.create_task(notifier.run_watchdog(lambda: True), name="watchdog")
        notifier.notify("READY=1", f"STATUS=Watching {equipment.client.endpoint}.")
        await stop.wait()
        notifier.notify("STOPPING=1")
        watchdog.cancel()
        _force_exit_later()


def _force_exit_later() -> None:
    """Exit after a timeout even if a thread hangs, for example in a DNS lookup. The journal has all started work."""
    timer = threading.Timer(SHUTDOWN_TIMEOUT, os._exit, args=(0,))
    timer.daemon = True
    timer.start()


def _install_signal_handlers(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in STOP_SIGNALS:
        if number := getattr(signal, name, None):
            loop.add_signal_handler(number, stop.set)


if __name__ == "__main__":
    main(*sys.argv[1:])
